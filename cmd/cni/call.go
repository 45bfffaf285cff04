package main

import (
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// A call is one run of the plugin, and what its log line tells.
type call struct {
	began     time.Time
	begun     bool // the skeleton let it through to its verb
	verbName  string
	args      *skel.CmdArgs
	pod       podArgs
	conf      *netconf.Config
	confErr   error
	addresses []netip.Addr
	warnings  []error
}

// newCall is the call as the environment tells of it, with a configuration that
// holds defaults alone.
func newCall() *call {
	conf, _ := netconf.Parse([]byte("{}"))
	return &call{
		began:    time.Now(),
		verbName: os.Getenv("CNI_COMMAND"),
		args:     &skel.CmdArgs{ContainerID: os.Getenv("CNI_CONTAINERID"), IfName: os.Getenv("CNI_IFNAME")},
		pod:      parseArgs(os.Getenv("CNI_ARGS")),
		conf:     conf,
	}
}

// A verb does what one CNI command asks for. Only ADD has a result.
type verb func(*call) (*types100.Result, error)

// verb wraps a verb as the skeleton wants it: nothing that it does can reach
// standard output but its result, and each call leaves a line in the log.
func (c *call) verb(do verb) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		c.begun, c.args, c.pod = true, args, parseArgs(args.Args)
		c.conf, c.confErr = netconf.Parse(args.StdinData)
		stdout := os.Stdout
		os.Stdout = os.Stderr
		result, err := c.guard(do)
		os.Stdout = stdout
		if err == nil && result != nil {
			err = types.PrintResult(result, c.conf.CNIVersion)
		}
		answer := asCNIError(err)
		c.log(answer)
		if answer == nil {
			return nil
		}
		return answer
	}
}

func (c *call) guard(do verb) (result *types100.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "vpcroute: panic: %v\n%s", p, debug.Stack())
			result, err = nil, internalError(p)
		}
	}()
	return do(c)
}

func (c *call) owner() bridge.Owner {
	return bridge.Owner{ContainerID: c.args.ContainerID, IfName: c.args.IfName}
}

// warn notes what went wrong without failing the call.
func (c *call) warn(err error) {
	if err != nil {
		c.warnings = append(c.warnings, err)
	}
}

// needConf refuses to go on with a configuration that is not right.
func (c *call) needConf() error {
	if c.confErr == nil {
		return nil
	}
	var next string
	if unwrapped, ok := c.confErr.(interface{ Unwrap() []error }); ok && len(unwrapped.Unwrap()) > 1 {
		next = fmt.Sprintf("correct all %d in the conflist", len(unwrapped.Unwrap()))
	} else {
		next = "correct it in the conflist"
	}
	return failure(types.ErrInvalidNetworkConfig, c.confErr, next)
}
