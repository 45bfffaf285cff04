package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The subnet is a star: each node hangs off a port of its own and the router
// answers for the other nodes' addresses (proxy ARP and its IPv6 counterpart),
// as a cloud's fabric does. So nodes see one subnet on their uplink, yet every
// packet between two of them crosses the router and meets its routing table.

// pollInterval is how often a state that is waited for is looked at.
const pollInterval = 20 * time.Millisecond

// forward makes a namespace forward, as the router does by itself and a node by
// its own set-up before any pod comes. A new namespace takes the machine's IPv4
// settings: strict reverse-path filtering among them would drop pods' packets
// for another reason than a missing route.
func forward() error {
	return set(setting{"ipv4/conf/all/rp_filter", "0"}, setting{"ipv4/conf/default/rp_filter", "0"},
		setting{"ipv4/ip_forward", "1"}, setting{"ipv6/conf/all/forwarding", "1"})
}

// plug connects a node's uplink to a new port of the router.
func (b *Box) plug(n *Node) error {
	h, err := vnetns.GetFromPath(n.Namespace.Path())
	if err != nil {
		return fmt.Errorf("open %s: %w", n.Namespace.Path(), err)
	}
	defer h.Close()
	err = b.Router.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = n.Name, b.MTU
		port := &netlink.Veth{LinkAttrs: attrs, PeerName: uplinkName, PeerNamespace: netlink.NsFd(h)}
		if err := netlink.LinkAdd(port); err != nil {
			return fmt.Errorf("create the uplink of %s (a veth pair): %w", n.Name, err)
		}
		if err := raisePort(n.Name, setting{"ipv4/conf/" + n.Name + "/proxy_arp", "1"}, setting{"ipv6/conf/" + n.Name + "/proxy_ndp", "1"},
			setting{"ipv4/neigh/" + n.Name + "/proxy_delay", "0"}, setting{"ipv6/neigh/" + n.Name + "/proxy_delay", "0"}); err != nil {
			return err
		}
		for _, net := range b.networks {
			if err := addAddress(n.Name, netip.PrefixFrom(net.gateway(), net.gateway().BitLen())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return n.Namespace.Do(func() error { return raisePort(uplinkName) })
}

// raisePort brings one end of an uplink up, without the second of wait for
// duplicate IPv6 addresses that would keep its neighbor discovery silent.
func raisePort(name string, more ...setting) error {
	dir := "ipv6/conf/" + name
	if err := set(append(more, setting{dir + "/accept_dad", "0"}, setting{dir + "/dad_transmits", "0"})...); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func addAddress(device string, p netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return fmt.Errorf("give %s the address %s: %w", device, p, err)
	}
	return nil
}

// join gives a plugged node its addresses and makes the subnet know them.
func (b *Box) join(n *Node) error {
	err := n.Namespace.Do(func() error {
		for _, net := range b.networks {
			address := n.Address(net.subnet.Addr())
			if err := addAddress(uplinkName, netip.PrefixFrom(address, net.subnet.Bits())); err != nil {
				return err
			}
			if err := replaceRoute(uplinkName, Route{Destination: everything(address), Via: net.gateway()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return b.Router.Do(func() error {
		for _, address := range n.Addresses {
			if err := replaceRoute(n.Name, Route{Destination: netip.PrefixFrom(address, address.BitLen())}); err != nil {
				return err
			}
		}
		return b.answer(n, netlink.NeighSet)
	})
}

// leave undoes join.
func (b *Box) leave(n *Node) error {
	err := n.Namespace.Do(func() error {
		link, err := netlink.LinkByName(uplinkName)
		if err != nil {
			return err
		}
		for _, net := range b.networks {
			p := netip.PrefixFrom(n.Address(net.subnet.Addr()), net.subnet.Bits())
			if err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
				return fmt.Errorf("take %s from %s: %w", p, n.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.Router.Do(func() error {
		for _, address := range n.Addresses {
			if err := deleteRoute(netip.PrefixFrom(address, address.BitLen())); err != nil {
				return err
			}
		}
		return b.answer(n, netlink.NeighDel)
	})
}

// answer changes, on the ports of the other nodes, the IPv6 addresses that the
// router answers for; proxy ARP needs no such list.
func (b *Box) answer(n *Node, change func(*netlink.Neigh) error) error {
	for _, here := range b.Nodes {
		for _, there := range b.Nodes {
			if here == there || here != n && there != n {
				continue
			}
			link, err := netlink.LinkByName(here.Name)
			if err != nil {
				return err
			}
			for _, a := range there.Addresses {
				if a.Is4() {
					continue
				}
				entry := &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V6, Flags: netlink.NTF_PROXY, IP: a.AsSlice()}
				if err := change(entry); err != nil && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("answer for %s on the port of %s: %w", a, here.Name, err)
				}
			}
		}
	}
	return nil
}

// A Route is an entry of the VPC's route table.
type Route struct {
	// Destination is the range of the packets the route applies to.
	Destination netip.Prefix
	// Via is the next hop's address; zero for a node that hangs off the router
	// itself, which is what clouds call a local route.
	Via netip.Addr
	// Protocol says who made the route, as in rtnetlink(7).
	Protocol int
}

// String returns the route as "ip route" spells it, without its protocol.
func (r Route) String() string {
	if !r.Via.IsValid() {
		return r.Destination.String()
	}
	return r.Destination.String() + " via " + r.Via.String()
}

// Routes lists the VPC's route table. The kernel's own entries (local
// addresses, link-local and multicast ranges) are left out.
func (b *Box) Routes() (routes []Route, err error) {
	err = b.Router.Do(func() error {
		found, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list the VPC's routes: %w", err)
		}
		for _, r := range found {
			if r.Protocol == unix.RTPROT_KERNEL {
				continue
			}
			via, _ := netip.AddrFromSlice(r.Gw)
			routes = append(routes, Route{destination(r), via.Unmap(), int(r.Protocol)})
		}
		return nil
	})
	return routes, err
}

// RoutesTo are the entries that bring every podCIDR of some nodes to its node.
func RoutesTo(nodes ...*Node) []Route {
	var routes []Route
	for _, n := range nodes {
		for _, p := range n.PodCIDRs {
			routes = append(routes, Route{Destination: p, Via: n.Address(p.Addr())})
		}
	}
	return routes
}

// AwaitRoutes waits until the entries of the VPC's route table that have a next
// hop are exactly these, whoever wrote them. When ctx ends first, the error
// lists what there is instead.
func (b *Box) AwaitRoutes(ctx context.Context, want ...Route) error {
	for {
		routes, err := b.Routes()
		if err != nil {
			return err
		}
		if slices.Equal(spelled(routes), spelled(want)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the VPC's route table is not as it should be:\n have %q\n want %q", spelled(routes), spelled(want))
		case <-time.After(pollInterval):
		}
	}
}

// spelled returns, sorted, the text of the routes that have a next hop.
func spelled(routes []Route) []string {
	var text []string
	for _, r := range routes {
		if r.Via.IsValid() {
			text = append(text, r.String())
		}
	}
	slices.Sort(text)
	return text
}

// Route writes an entry of the VPC's route table by hand, as an operator or a
// cloud's own API would, in place of one with the same destination.
func (b *Box) Route(destination netip.Prefix, via netip.Addr) error {
	return b.Router.Do(func() error {
		return replaceRoute("", Route{Destination: destination, Via: via, Protocol: unix.RTPROT_STATIC})
	})
}

// Unroute removes an entry of the VPC's route table by hand.
func (b *Box) Unroute(destination netip.Prefix) error {
	return b.Router.Do(func() error { return deleteRoute(destination) })
}

// replaceRoute writes a route of the current namespace; device may be empty
// where the next hop tells it.
func replaceRoute(device string, r Route) error {
	route := &netlink.Route{Dst: ipNet(r.Destination), Protocol: netlink.RouteProtocol(r.Protocol)}
	if r.Protocol == 0 {
		route.Protocol = unix.RTPROT_BOOT
	}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	if device != "" {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find %s: %w", device, err)
		}
		route.LinkIndex = link.Attrs().Index
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s: %w", r, err)
	}
	return nil
}

// deleteRoute removes a route of the current namespace, whatever its scope.
func deleteRoute(destination netip.Prefix) error {
	if err := netlink.RouteDel(&netlink.Route{Dst: ipNet(destination), Scope: netlink.SCOPE_NOWHERE}); err != nil {
		return fmt.Errorf("remove route %s: %w", destination, err)
	}
	return nil
}

// destination reads the range of a listed route; a default route may have none.
func destination(r netlink.Route) netip.Prefix {
	if r.Dst == nil && r.Family == netlink.FAMILY_V4 {
		return everything(netip.IPv4Unspecified())
	}
	if r.Dst == nil {
		return everything(netip.IPv6Unspecified())
	}
	a, _ := netip.AddrFromSlice(r.Dst.IP)
	if r.Family == netlink.FAMILY_V4 {
		a = a.Unmap()
	}
	ones, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(a, ones)
}

// everything is the default destination of an address's family.
func everything(like netip.Addr) netip.Prefix {
	if like.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
