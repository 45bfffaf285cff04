package main

import (
	"context"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// watchRules has changes of the packet filter looked at at once. Where the
// kernel cannot tell of them, the period does.
func watchRules(ctx context.Context, poke func()) {
	for ctx.Err() == nil {
		if err := node.WatchRules(ctx, poke); err != nil {
			return
		}
	}
}
