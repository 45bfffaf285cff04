// Command demo raises the VPC in a box on this machine and shows, with the
// built plugin and the built route controller as processes, how pods on two
// nodes meet over VPC routes. It needs root and Go, and touches nothing but its
// own namespaces and its own directory, which it removes however it ends. The
// same box carries the tests; nothing here may decide what the product does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

const usage = `usage: demo [-programs DIR] [-cloud NAME]   raise a VPC in a box, show it, remove it
       KEEP=1 demo                          the same, but leave it running
       demo down                            remove the boxes that were left running
`

func main() { os.Exit(run()) }

func run() int {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	programs := flag.String("programs", "", "directory of the built vpcroute and route-controller; built from this module when empty")
	cloudName := flag.String("cloud", "", "emulated `cloud` whose API the controller talks to, and whose table the VPC's is: "+cloudNames()+"; none when empty")
	flag.Parse()
	// A closed terminal or pipe is no reason to leave anything behind either.
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	var err error
	switch verb := flag.Arg(0); verb {
	case "":
		err = show(ctx, *programs, *cloudName, os.Getenv("KEEP") != "")
	case "down":
		err = down()
	case emulateVerb:
		err = emulate(ctx, flag.Args()[1:])
	case serveVerb:
		err = serve(ctx, flag.Args()[1:])
	default:
		fmt.Fprintf(os.Stderr, "demo: no such verb: %q\n%s", verb, usage)
		return 2
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "demo:", err)
	if errors.Is(err, errInterrupted) {
		return 130 // as shells have it for SIGINT
	}
	return 1
}

// down removes every box that was kept or left behind.
func down() error {
	kept, left, err := netns.Boxes("")
	if err != nil {
		return err
	}
	for _, dir := range append(kept, left...) {
		if e := netns.TearDown(dir); e != nil {
			err = errors.Join(err, e)
			continue
		}
		fmt.Println("removed", filepath.Base(dir))
	}
	return err
}

// serveVerb keeps the hosts of a kept box answering, in a process of its own.
const serveVerb = "serve"

// hostArgs spells hosts for serve: NAMESPACE=ADDRESS,ADDRESS.
func hostArgs(hosts []*netns.Host) []string {
	var args []string
	for _, h := range hosts {
		var addresses []string
		for _, a := range h.Addresses {
			addresses = append(addresses, a.String())
		}
		args = append(args, h.Namespace.Name+"="+strings.Join(addresses, ","))
	}
	return args
}

func serve(ctx context.Context, args []string) error {
	var hosts []*netns.Host
	for _, arg := range args {
		name, list, _ := strings.Cut(arg, "=")
		h := &netns.Host{Name: name, Namespace: &sandbox.Namespace{Name: name}}
		for text := range strings.SplitSeq(list, ",") {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return err
			}
			h.Addresses = append(h.Addresses, a)
		}
		hosts = append(hosts, h)
	}
	servers, err := netns.Serve(hosts...)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return servers.Close()
}
