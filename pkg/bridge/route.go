package bridge

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A route is one entry of the main routing table.
type route struct {
	dst  netip.Prefix
	gw   netip.Addr
	link int // index of the link packets leave by
}

// addRoute adds a route by a gateway; it is no error if it is there already.
func (c *conn) addRoute(r route) error {
	m := &message{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, body: make([]byte, unix.SizeofRtMsg)}
	m.body[0], m.body[1] = familyOf(r.dst.Addr()), byte(r.dst.Bits())
	m.body[4], m.body[5] = unix.RT_TABLE_MAIN, unix.RTPROT_BOOT
	m.body[6], m.body[7] = unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST
	m.attr(unix.RTA_DST, r.dst.Addr().AsSlice()).
		attr(unix.RTA_GATEWAY, r.gw.AsSlice()).
		attr32(unix.RTA_OIF, uint32(r.link))
	if err := c.do(m); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add route %s via %s: %w", r.dst, r.gw, err)
	}
	return nil
}

// routes lists the main table's unicast routes of a family that leave by one
// link, or by any when link is 0. A route with several next hops counts once
// for each.
func (c *conn) routes(family byte, link int) ([]route, error) {
	m := &message{kind: unix.RTM_GETROUTE, body: make([]byte, unix.SizeofRtMsg)}
	m.body[0], m.body[4], m.body[7] = family, unix.RT_TABLE_MAIN, unix.RTN_UNICAST
	if link != 0 {
		m.attr32(unix.RTA_OIF, uint32(link))
	}
	found, err := c.dump(m)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var out []route
	for _, b := range found {
		out = append(out, parseRoute(b)...)
	}
	return out, nil
}

// routeTo asks which link packets to an address leave by; 0 when none do.
func (c *conn) routeTo(a netip.Addr) int {
	m := &message{kind: unix.RTM_GETROUTE, body: make([]byte, unix.SizeofRtMsg)}
	m.body[0], m.body[1] = familyOf(a), byte(a.BitLen())
	b, err := c.get(m.attr(unix.RTA_DST, a.AsSlice()))
	if err != nil {
		return 0
	}
	for _, r := range parseRoute(b) {
		return r.link
	}
	return 0
}

func parseRoute(b []byte) []route {
	if len(b) < unix.SizeofRtMsg {
		return nil
	}
	r := route{dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
	if b[0] == unix.AF_INET6 {
		r.dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var out []route
	for kind, v := range attributes(b[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			a, _ := netip.AddrFromSlice(v)
			r.dst = netip.PrefixFrom(a, int(b[1]))
		case unix.RTA_GATEWAY:
			r.gw, _ = netip.AddrFromSlice(v)
		case unix.RTA_OIF:
			r.link = int(number32(v))
		case unix.RTA_MULTIPATH:
			out = append(out, nextHops(r.dst, v)...)
		}
	}
	if r.link != 0 {
		out = append(out, r)
	}
	return out
}

// nextHops reads the struct rtnexthop list of a multipath route.
func nextHops(dst netip.Prefix, b []byte) []route {
	var out []route
	for len(b) >= unix.SizeofRtNexthop {
		size := int(native.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			break
		}
		out = append(out, route{dst: dst, link: int(native.Uint32(b[4:]))})
		b = b[min(align(size), len(b)):]
	}
	return out
}
