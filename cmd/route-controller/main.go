// Command route-controller keeps a VPC's route table in step with the nodes of a
// cluster: one route per podCIDR, to the node that has it. It is the place where
// flags, files, logs and signals are met; it must not decide anything about a
// route itself, which is the work of pkg/routes and pkg/vpc.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	var exit exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	}
	fmt.Fprintln(os.Stderr, "route-controller:", err)
	return 1
}

// An exitCode ends the process with a code; what is to be said has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
