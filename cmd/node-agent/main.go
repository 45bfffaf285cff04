// Command node-agent keeps one node fit for the CNI plugin: it installs the
// plugin and its configuration, keeps kernel settings and masquerade rules, and
// answers on a port who and how the node is. It is where flags, the API server,
// logs and signals are met; what is done to the node is decided in pkg/node, never here.
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
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errPodsLeft):
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		return 3
	}
	fmt.Fprintln(os.Stderr, "node-agent:", err)
	return 1
}
