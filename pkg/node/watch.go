package node

import (
	"context"
	"fmt"

	"github.com/google/nftables"
)

// WatchRules calls changed after every change of the nftables rules in the
// calling thread's network namespace, ours included, until the context ends;
// then it returns nil. A burst of changes may come as one call.
func WatchRules(ctx context.Context, changed func()) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	monitor := nftables.NewMonitor()
	events, err := conn.AddGenerationalMonitor(monitor)
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	stopped := context.AfterFunc(ctx, func() { _ = monitor.Close() })
	defer stopped()
	for range events {
		if ctx.Err() == nil {
			changed()
		}
	}
	return nil
}
