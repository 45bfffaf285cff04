package linux

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// defaultMetric6 is the metric of an IPv6 route made without one
// (IP6_RT_PRIO_USER in linux/ipv6_route.h); for IPv4 it is 0.
const defaultMetric6 = 1024

// rtaNexthopID is RTA_NH_ID of linux/rtnetlink.h.
const rtaNexthopID = 30

// An entry is one entry of the kernel's table, with all it takes to delete it
// and no other.
type entry struct {
	destination netip.Prefix
	gateway     netip.Addr // the zero Addr unless it is one plain gateway
	protocol    uint8
	gone        bool // the kernel drops what it matches
	text        string

	header unix.RtMsg
	attrs  attributes
}

// id tells entries for one destination and gateway apart.
func (e entry) id() string {
	var parts []string
	add := func(name string, n uint32) {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	if e.header.Type != unix.RTN_UNICAST {
		add("type", uint32(e.header.Type))
	}
	if e.header.Family != unix.AF_INET6 || e.attrs.number(unix.RTA_PRIORITY) != defaultMetric6 {
		add("metric", e.attrs.number(unix.RTA_PRIORITY))
	}
	add("tos", uint32(e.header.Tos))
	return strings.Join(parts, " ")
}

// attributes are a message's, by type.
type attributes map[uint16][]byte

func parseAttributes(b []byte) (attributes, error) {
	attrs := attributes{}
	for len(b) >= unix.SizeofRtAttr {
		size := int(nl.NativeEndian().Uint16(b))
		kind := nl.NativeEndian().Uint16(b[2:]) &^ uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if size < unix.SizeofRtAttr || size > len(b) {
			return nil, unix.EINVAL
		}
		attrs[kind] = b[unix.SizeofRtAttr:size]
		b = b[min(aligned(size), len(b)):]
	}
	return attrs, nil
}

// aligned rounds a length up to where the next part begins.
func aligned(size int) int { return (size + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1) }

// number returns an attribute of 32 bits, or 0 when it is absent.
func (a attributes) number(kind uint16) uint32 {
	if len(a[kind]) < 4 {
		return 0
	}
	return nl.NativeEndian().Uint32(a[kind])
}

// address returns an attribute that holds an address of a family, else the zero
// Addr.
func (a attributes) address(kind uint16, family vpc.Family) netip.Addr {
	addr, ok := netip.AddrFromSlice(a[kind])
	if !ok || addr.Is4() != (family == vpc.IPv4) {
		return netip.Addr{}
	}
	return addr
}

func (a attributes) has(kinds ...uint16) bool {
	return slices.ContainsFunc(kinds, func(kind uint16) bool { _, ok := a[kind]; return ok })
}

// entries returns all entries of a table, of both families.
func (c *conn) entries(table uint32) ([]entry, error) {
	var entries []entry
	for _, family := range families() {
		messages, err := c.dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, header(family), number(unix.RTA_TABLE, table))
		// A table that never had an entry does not exist.
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("dump %v routes: %w", family, err)
		}
		for _, m := range messages {
			entries = append(entries, parseEntries(m, family, table)...)
		}
	}
	return entries, nil
}

func header(family vpc.Family) *nl.RtMsg {
	return &nl.RtMsg{RtMsg: unix.RtMsg{Family: linuxFamily(family)}}
}

func linuxFamily(family vpc.Family) uint8 {
	if family == vpc.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func number(kind int, n uint32) nl.NetlinkRequestData {
	return nl.NewRtAttr(kind, nl.Uint32Attr(n))
}

// parseEntries reads one message of a dump: no entry when it is not of the
// family and table, one for most, and one per gateway for several IPv6 paths.
// What cannot be read is an entry with text.
func parseEntries(m []byte, family vpc.Family, table uint32) []entry {
	if len(m) < unix.SizeofRtMsg {
		return []entry{{text: fmt.Sprintf("unreadable %v entry % x", family, m)}}
	}
	e := entry{header: nl.DeserializeRtMsg(m).RtMsg}
	if e.header.Family != linuxFamily(family) || e.header.Flags&unix.RTM_F_CLONED != 0 {
		return nil
	}
	var err error
	if e.attrs, err = parseAttributes(m[unix.SizeofRtMsg:]); err != nil {
		e.text = fmt.Sprintf("unreadable %v entry % x", family, m)
		return []entry{e}
	}
	if id := e.attrs.number(unix.RTA_TABLE); id != table && (id != 0 || uint32(e.header.Table) != table) {
		return nil
	}
	e.protocol = e.header.Protocol
	e.destination, e.text = destination(e.header, e.attrs, family)
	e.gone = dropping(e.header.Type) || dead(e.header.Flags)
	if family == vpc.IPv6 && e.attrs.has(unix.RTA_MULTIPATH) {
		if paths, err := e.split(); err == nil {
			return paths
		}
	}
	if e.plain() {
		e.gateway = e.attrs.address(unix.RTA_GATEWAY, family)
	}
	return []entry{e}
}

// destination reads an entry's range; text is how to call one that is none.
func destination(h unix.RtMsg, attrs attributes, family vpc.Family) (d netip.Prefix, text string) {
	addr := netip.IPv4Unspecified()
	if family == vpc.IPv6 {
		addr = netip.IPv6Unspecified()
	}
	if attrs.has(unix.RTA_DST) {
		addr = attrs.address(unix.RTA_DST, family)
	}
	d = netip.PrefixFrom(addr, int(h.Dst_len))
	if !d.IsValid() || d != d.Masked() || d.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Sprintf("%v/%d", addr, h.Dst_len)
	}
	return d, ""
}

// plain is true for an entry that matches all packets to its destination and
// has at most one gateway and no tunnel.
func (e entry) plain() bool {
	return e.header.Type == unix.RTN_UNICAST && e.header.Tos == 0 && e.header.Src_len == 0 &&
		!e.attrs.has(unix.RTA_MULTIPATH, unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE, unix.RTA_VIA)
}

func dropping(routeType uint8) bool {
	return routeType == unix.RTN_BLACKHOLE || routeType == unix.RTN_UNREACHABLE || routeType == unix.RTN_PROHIBIT
}

func dead(flags uint32) bool { return flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0 }

// split makes one entry of each path of an IPv6 entry, as the kernel keeps them.
func (e entry) split() ([]entry, error) {
	var paths []entry
	for rest := e.attrs[unix.RTA_MULTIPATH]; len(rest) > 0; {
		if len(rest) < unix.SizeofRtNexthop {
			return nil, unix.EINVAL
		}
		hop := nl.DeserializeRtNexthop(rest)
		size := int(hop.RtNexthop.Len)
		if size < unix.SizeofRtNexthop || size > len(rest) {
			return nil, unix.EINVAL
		}
		attrs, err := parseAttributes(rest[unix.SizeofRtNexthop:size])
		if err != nil {
			return nil, err
		}
		paths = append(paths, e.path(hop.RtNexthop, attrs))
		rest = rest[min(aligned(size), len(rest)):]
	}
	return paths, nil
}

func (e entry) path(hop unix.RtNexthop, own attributes) entry {
	p := e
	p.attrs = maps.Clone(e.attrs)
	delete(p.attrs, unix.RTA_MULTIPATH)
	maps.Copy(p.attrs, own)
	p.attrs[unix.RTA_OIF] = nl.Uint32Attr(uint32(hop.Ifindex))
	p.gone = e.gone || dead(uint32(hop.Flags))
	if p.plain() {
		p.gateway = p.attrs.address(unix.RTA_GATEWAY, vpc.IPv6)
	}
	return p
}

// deletion is the message that deletes this entry and no other: the kernel
// compares protocol, type, metric and whatever names the next hop (fib_table_delete
// in net/ipv4/fib_trie.c, ip6_route_del in net/ipv6/route.c).
func (e entry) deletion() []nl.NetlinkRequestData {
	keys := []uint16{unix.RTA_DST, unix.RTA_SRC, unix.RTA_TABLE, unix.RTA_PRIORITY}
	switch {
	case e.attrs.has(rtaNexthopID):
		keys = append(keys, rtaNexthopID)
	case e.attrs.has(unix.RTA_MULTIPATH):
		keys = append(keys, unix.RTA_MULTIPATH)
	default:
		keys = append(keys, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_OIF)
	}
	parts := []nl.NetlinkRequestData{&nl.RtMsg{RtMsg: unix.RtMsg{
		Family: e.header.Family, Dst_len: e.header.Dst_len, Src_len: e.header.Src_len, Tos: e.header.Tos,
		Table: e.header.Table, Protocol: e.header.Protocol, Scope: e.header.Scope, Type: e.header.Type,
	}}}
	for _, key := range keys {
		if value, ok := e.attrs[key]; ok {
			parts = append(parts, nl.NewRtAttr(int(key), value))
		}
	}
	return parts
}
