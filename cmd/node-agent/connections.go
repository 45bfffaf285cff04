package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// forgetReleased has connection tracking forget the addresses that come free, so
// that none of their packets reaches the next pod with such an address.
func (l *loop) forgetReleased(ctx context.Context) {
	const retry = time.Second
	for ctx.Err() == nil {
		if err := node.WatchReleases(ctx, l.forget); err != nil {
			l.log.Warn("cannot see addresses come free", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

func (l *loop) forget(released []netip.Addr) {
	n, err := node.ForgetConnections(l.current().PodCIDRs, l.agent.Bridge, released)
	if err != nil {
		l.log.Warn("connections of released addresses may reach their next owners", "error", err)
	}
	if n > 0 {
		l.log.Info("forgot connections of released addresses", "connections", n)
	}
}
