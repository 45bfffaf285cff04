package bridge

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// defaultMTU is used on a node that has no way out at all: Ethernet's.
const defaultMTU = 1500

// beyond are addresses for documentation (RFC 5737, RFC 3849). Nobody routes
// them specially, so the route to one is the node's way out.
var beyond = []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}

// uplinkMTU returns the MTU of the link by which packets leave the node: that
// of the default route, in IPv4 if there is one, else in IPv6. A node without a
// default route has the smallest MTU of the links that its routes use.
func (b *Bridge) uplinkMTU() (int, error) {
	for _, a := range beyond {
		if index := b.host.routeTo(a); index != 0 {
			if l, err := b.host.linkByIndex(index); err == nil && b.mayBeUplink(l) {
				return l.mtu, nil
			}
		}
	}
	return b.smallestMTU()
}

func (b *Bridge) mayBeUplink(l *link) bool {
	return l.up && !l.loopback && l.name != b.name && l.mtu > 0
}

func (b *Bridge) smallestMTU() (int, error) {
	seen := map[int]bool{}
	smallest := 0
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		routes, err := b.host.routes(family, 0)
		if err != nil {
			return 0, err
		}
		for _, r := range routes {
			// Every link with IPv6 has a link-local route, in use or not.
			if seen[r.link] || r.dst.Addr().IsLinkLocalUnicast() {
				continue
			}
			seen[r.link] = true
			// Other bridges are other container networks, not ways out.
			l, err := b.host.linkByIndex(r.link)
			if err == nil && b.mayBeUplink(l) && l.kind != kindBridge && (smallest == 0 || l.mtu < smallest) {
				smallest = l.mtu
			}
		}
	}
	if smallest == 0 {
		return defaultMTU, nil
	}
	return smallest, nil
}
