package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// gather is how long releases are collected before they are told of: a drained
// node releases all its addresses in a moment, and each look at the connections
// goes through all of them.
const gather = 100 * time.Millisecond

// WatchReleases calls released with the addresses that ports of the bridge
// claimed and that have just come free, until the context ends; then it returns
// nil. The first call comes at once and names none, since addresses may have
// come free while nobody watched. It sees the calling thread's network
// namespace.
//
// The kernel tells of a link's end with all its names (rtmsg_ifinfo_build_skb in
// unregister_netdevice_many_notify, net/core/dev.c), however it came: by DEL, or
// with its namespace.
func WatchReleases(ctx context.Context, released func([]netip.Addr)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // where the subscription fails
	links := make(chan netlink.LinkUpdate, 64)
	var lost error
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{
		ErrorCallback: func(err error) { lost = err },
	}); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	defer func() {
		stop()
		for range links { // the subscription ends when its last news is taken
		}
	}()
	released(nil)
	var free []netip.Addr
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case l, ok := <-links:
			if !ok {
				return endOf(ctx, lost)
			}
			if l.Header.Type == unix.RTM_DELLINK {
				free = append(free, claims(l.Attrs().AltNames)...)
			}
			if len(free) > 0 && due == nil {
				due = time.After(gather)
			}
		case <-due:
			released(free)
			free, due = nil, nil
		}
	}
}

// endOf is what the end of the subscription means: nothing when it was asked for.
func endOf(ctx context.Context, lost error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch links: %w", lost)
}

func claims(altnames []string) []netip.Addr {
	var out []netip.Addr
	for _, name := range altnames {
		if a, ok := bridge.AltnameAddr(name); ok {
			out = append(out, a)
		}
	}
	return out
}

// ForgetConnections deletes what connection tracking knows of addresses of the
// podCIDRs that no port of the bridge claims, and of those just released,
// whoever claims them by now: their next owner must not get packets of a
// connection that is not its own. Gateways are the node's, and are left alone.
// It returns how many connections were deleted. Nothing is done where the kernel
// tracks none.
func ForgetConnections(podCIDRs []netip.Prefix, bridgeName string, released []netip.Addr) (int, error) {
	if count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count"); err != nil || strings.TrimSpace(string(count)) == "0" {
		return 0, nil
	}
	claimed, err := claimedOn(bridgeName)
	if err != nil {
		return 0, err
	}
	stale := staleConnections{podCIDRs: podCIDRs, claimed: claimed, released: released}
	var total uint
	var errs []error
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, stale)
		total += n
		// An entry that ended by itself meanwhile is what was wanted.
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("forget connections: %w", err))
		}
	}
	return int(total), errors.Join(errs...)
}

func claimedOn(bridgeName string) (map[netip.Addr]bool, error) {
	br, err := bridge.Open(bridgeName)
	if err != nil {
		return nil, err
	}
	defer br.Close()
	entries, _, err := br.Ledger()
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	claimed := map[netip.Addr]bool{}
	for _, e := range entries {
		for _, a := range e.Addresses {
			claimed[a] = true
		}
	}
	return claimed, nil
}

// staleConnections are those with an end that nobody has any more.
type staleConnections struct {
	podCIDRs []netip.Prefix
	claimed  map[netip.Addr]bool
	released []netip.Addr
}

// MatchConntrackFlow tells whether one of a connection's ends is stale, before or
// after translation.
func (s staleConnections) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, ip := range [][]byte{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(ip); ok && s.stale(a.Unmap()) {
			return true
		}
	}
	return false
}

func (s staleConnections) stale(a netip.Addr) bool {
	if slices.Contains(s.released, a) {
		return true
	}
	return !s.claimed[a] && slices.ContainsFunc(s.podCIDRs, func(p netip.Prefix) bool {
		return p.Contains(a) && a != p.Masked().Addr().Next()
	})
}
