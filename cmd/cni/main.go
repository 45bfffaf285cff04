// Command cni is the CNI plugin vpcroute: it gives a pod its interface, its
// addresses and its routes, and takes them back. It is the one place that knows
// CNI's types and error codes, and it joins pkg/netconf (what is wanted),
// pkg/ipam (which address next) and pkg/bridge (the kernel, which keeps the
// ledger). It talks to nobody else: it must not import k8s.io, a cloud's SDK,
// net/http or os/exec.
//
// A call lives for milliseconds, so the runtime need not ask the control groups
// how many processors it may use.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"
)

// version is the program's version, set by the linker.
var version = "dev"

var supported = cniversion.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

const usage = `CNI plugin vpcroute %s

It is run by a container runtime, which says what to do in CNI_COMMAND and hands
the network configuration to standard input. A conflist that uses it:

  {"cniVersion": "1.1.0", "name": "pods", "plugins": [
    {"type": "vpcroute", "podCIDRs": ["10.244.1.0/24"]}]}

Whose is an address:   ip link show 10.244.1.7
All pods of the node:  ip -d link show master cbr0
All fields and errors: docs/cni.md
`

func main() { os.Exit(run()) }

// run answers one call. Only results and errors reach standard output.
func run() int {
	debug.SetGCPercent(-1) // a call lives for milliseconds and needs little
	// The skeleton would fail a DEL whose namespace is the node's own by now,
	// and an ADD after its result is printed. ADD looks for itself.
	if err := os.Setenv("CNI_NETNS_OVERRIDE", "true"); err != nil {
		panic(err) // it fails for a malformed name only
	}
	c := newCall()
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    c.verb(add),
		Del:    c.verb(del),
		Check:  c.verb(check),
		Status: c.verb(status),
		GC:     c.verb(gc),
	}, supported, fmt.Sprintf(usage, version))
	if err == nil {
		return 0
	}
	if !c.begun {
		c.log(err)
	}
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintln(os.Stderr, "vpcroute: print the error:", printErr)
	}
	return 1
}

// internalError turns a panic into an answer.
func internalError(panicked any) *types.Error {
	return failure(types.ErrInternal, fmt.Errorf("vpcroute %s failed inside: %v", version, panicked),
		"report it with the stack from the runtime's log")
}
