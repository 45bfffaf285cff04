package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A Port is what Attach makes: a veth with one end on the bridge and the other
// in the pod.
type Port struct {
	Owner Owner
	// Network is the name of the network the attachment belongs to.
	Network string
	// NetNS is the path of the pod's network namespace.
	NetNS string
	// Alias is what people read in the host veth's alias: up to 255 bytes.
	Alias string
	// MTU of both ends in bytes, as Ensure returned it.
	MTU int
	// Hairpin lets frames leave by the port they came from.
	Hairpin bool
	// MAC is the pod end's hardware address; nil to compute it.
	MAC net.HardwareAddr
	// Routes are added in the pod beside its default routes.
	Routes []Route
}

// A Route is an extra route in the pod.
type Route struct {
	Dst netip.Prefix
	// GW is the next hop, and the zero Addr for the gateway of the pod's address
	// of that family.
	GW netip.Addr
}

// A Candidate is a set of addresses that a port may claim, all or none.
type Candidate struct {
	// Addresses are at most one per family, IPv4 first.
	Addresses []Address
	// Index is one and the same for these addresses and differs from that of
	// every other candidate. It makes the hardware address where there is no IPv4.
	Index uint32
}

// An Address is an address for a pod's interface.
type Address struct {
	// Prefix is the address with the length of its range.
	Prefix netip.Prefix
	// Gateway is the gateway of that range.
	Gateway netip.Addr
}

func (c Candidate) mac() net.HardwareAddr {
	return macFor(c.Addresses[0].Prefix.Addr(), c.Index)
}

// An Attachment is a port as Attach made it.
type Attachment struct {
	Addresses []Address
	Routes    []Route
	// BridgeMAC, HostMAC and PodMAC are the hardware addresses.
	BridgeMAC, HostMAC, PodMAC net.HardwareAddr
}

// Attach makes a port on the bridge, which Ensure has prepared, and claims the
// first candidate that is free. next is asked for one candidate after the other
// and told why the one before was refused, nil at first; its error ends the
// search. When Attach returns an error, nothing is left of
// the port, unless that error says so too; then its addresses stay claimed until
// Detach succeeds.
func (b *Bridge) Attach(p Port, next func(refused error) (Candidate, error)) (_ *Attachment, err error) {
	br, err := b.find()
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", b.name, err)
	}
	ns, err := openNamespace(p.NetNS)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	c, err := next(nil)
	if err != nil {
		return nil, err
	}
	mac := p.MAC
	if mac == nil {
		mac = c.mac()
	}
	if err := b.create(p, br.index, ns, mac); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.undo(p.Owner))
		}
	}()
	if c, err = b.claimFirst(p.Owner, c, next); err != nil {
		return nil, err
	}
	if err := b.dress(p); err != nil {
		return nil, err
	}
	if p.MAC == nil {
		mac = c.mac()
	}
	pod := pod{name: p.Owner.IfName, mac: mac, addresses: c.Addresses, routes: p.withGateways(c)}
	if err := pod.configure(ns); err != nil {
		return nil, fmt.Errorf("pod interface %s: %w", p.Owner.IfName, err)
	}
	return &Attachment{c.Addresses, pod.routes, br.mac, p.Owner.hostMAC(), mac}, nil
}

// create makes the veth with the pod's end in its namespace from the start. The
// host's end is up at once and gets its carrier when the pod's end comes up.
// Both have their hardware address from the first moment on, so udev chooses
// none.
func (b *Bridge) create(p Port, bridge int, ns *os.File, mac net.HardwareAddr) error {
	m := linkMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0).up().
		attrText(unix.IFLA_IFNAME, p.Owner.PortName()).
		attr32(unix.IFLA_MTU, uint32(p.MTU)).
		attr(unix.IFLA_ADDRESS, p.Owner.hostMAC()).
		attr32(unix.IFLA_MASTER, uint32(bridge)).
		attr32(unix.IFLA_GROUP, groupOf(p.Network))
	m.nest(unix.IFLA_LINKINFO, func() {
		m.attrText(unix.IFLA_INFO_KIND, kindVeth)
		m.nest(unix.IFLA_INFO_DATA, func() {
			m.nest(vethInfoPeer, func() {
				m.body = append(m.body, make([]byte, unix.SizeofIfInfomsg)...)
				m.attrText(unix.IFLA_IFNAME, p.Owner.IfName)
				m.attr32(unix.IFLA_MTU, uint32(p.MTU))
				m.attr(unix.IFLA_ADDRESS, mac)
				m.attr32(unix.IFLA_NET_NS_FD, uint32(ns.Fd()))
			})
		})
	})
	err := b.host.do(m)
	if errors.Is(err, errNoAnswer) {
		return errors.Join(err, b.undoUnclaimed(p.Owner))
	}
	if err != nil {
		return b.explainCreate(p, err)
	}
	return nil
}

// vethInfoPeer is VETH_INFO_PEER of linux/veth.h.
const vethInfoPeer = 1

// explainCreate finds out why a port could not be made.
func (b *Bridge) explainCreate(p Port, err error) error {
	name := p.Owner.PortName()
	switch {
	case errors.Is(err, unix.EEXIST):
		l, lookErr := b.host.linkByName(name)
		if lookErr == nil {
			return fmt.Errorf("%w: host veth %s has %s", ErrAttached, name, nonEmpty(l.claims()))
		}
		return fmt.Errorf("%w: %s", ErrInterfaceExists, p.Owner.IfName)
	case errors.Is(err, unix.EXFULL), errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: %s has %d", ErrFull, b.name, MaxPorts)
	}
	return fmt.Errorf("create host veth %s: %w", name, err)
}

func nonEmpty(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return "no address yet"
	}
	return fmt.Sprint(addresses)
}

func (b *Bridge) claimFirst(o Owner, c Candidate, next func(refused error) (Candidate, error)) (Candidate, error) {
	for {
		err := b.claim(o.PortName(), c)
		if !errors.Is(err, ErrTaken) {
			return c, err
		}
		if c, err = next(err); err != nil {
			return c, err
		}
	}
}

// claim gives a port all altnames of a candidate or none of them.
func (b *Bridge) claim(port string, c Candidate) error {
	for i, a := range c.Addresses {
		err := b.host.do(altnameMessage(unix.RTM_NEWLINKPROP, port, a.Prefix.Addr()))
		if err == nil {
			continue
		}
		for _, held := range c.Addresses[:i] {
			if err := b.host.do(altnameMessage(unix.RTM_DELLINKPROP, port, held.Prefix.Addr())); err != nil {
				return fmt.Errorf("release %s: %w", held.Prefix.Addr(), err)
			}
		}
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: %s", ErrTaken, a.Prefix.Addr())
		}
		return fmt.Errorf("claim %s: %w", a.Prefix.Addr(), err)
	}
	return nil
}

func altnameMessage(kind uint16, port string, a netip.Addr) *message {
	m := linkMessage(kind, 0, 0).attrText(unix.IFLA_IFNAME, port)
	if kind == unix.RTM_NEWLINKPROP {
		m.flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_APPEND
	}
	return m.nest(unix.IFLA_PROP_LIST, func() { m.attrText(unix.IFLA_ALT_IFNAME, Altname(a)) })
}

// dress gives the host veth what cannot be said when it is made.
func (b *Bridge) dress(p Port) error {
	m := linkMessage(unix.RTM_NEWLINK, 0, 0).
		attrText(unix.IFLA_IFNAME, p.Owner.PortName()).
		attr(unix.IFLA_IFALIAS, []byte(p.Alias)).
		noAddrGen().
		bridgePort(p.Hairpin)
	if err := b.host.do(m); err != nil {
		return fmt.Errorf("set up host veth %s: %w", p.Owner.PortName(), err)
	}
	return nil
}

// bridgePort sets what a port has by being one.
func (m *message) bridgePort(hairpin bool) *message {
	var mode uint8
	if hairpin {
		mode = 1
	}
	return m.nest(unix.IFLA_LINKINFO, func() {
		m.attrText(unix.IFLA_INFO_SLAVE_KIND, kindBridge)
		m.nest(unix.IFLA_INFO_SLAVE_DATA, func() { m.attr8(unix.IFLA_BRPORT_MODE, mode) })
	})
}

// withGateways returns the pod's routes, default routes first, each with its
// next hop.
func (p Port) withGateways(c Candidate) []Route {
	var out []Route
	gateway := map[bool]netip.Addr{}
	for _, a := range c.Addresses {
		gateway[a.Gateway.Is4()] = a.Gateway
		out = append(out, Route{defaultRoute(a.Gateway), a.Gateway})
	}
	for _, r := range p.Routes {
		if !r.GW.IsValid() {
			r.GW = gateway[r.Dst.Addr().Is4()]
		}
		out = append(out, r)
	}
	return out
}

func defaultRoute(gateway netip.Addr) netip.Prefix {
	if gateway.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// claims are the addresses a link claims by its altnames.
func (l *link) claims() []netip.Addr {
	var out []netip.Addr
	for _, n := range l.altnames {
		if a, ok := AltnameAddr(n); ok {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
