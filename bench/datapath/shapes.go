package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// A shape is a kind of network, and two ends on different nodes that meet by it.
type shape struct {
	name     string
	from, to end
}

// An end is where traffic starts or ends.
type end struct {
	ns      *sandbox.Namespace
	address netip.Addr
}

// The shapes' names in the report.
const (
	limit   = "node to node"
	ours    = "vpcroute"
	byHand  = "bridge by hand"
	ptp     = "ptp"
	overlay = "VXLAN"
)

// raise gives two nodes a pod in every shape.
func raise(ctx context.Context, box *netns.Box) ([]shape, error) {
	shapes := []shape{{name: limit}}
	for i, n := range box.Nodes {
		shapes[0].put(i, end{n.Namespace, n.Addresses[0]})
	}
	for _, s := range []struct {
		name   string
		attach func(context.Context, *netns.Box, int) (end, error)
	}{{ours, attachOurs}, {byHand, attachByHand}, {ptp, attachPTP}, {overlay, attachOverlay}} {
		made := shape{name: s.name}
		for i := range box.Nodes {
			e, err := s.attach(ctx, box, i)
			if err != nil {
				return nil, fmt.Errorf("%s on %s: %w", s.name, box.Nodes[i].Name, err)
			}
			made.put(i, e)
		}
		shapes = append(shapes, made)
	}
	return shapes, nil
}

func (s *shape) put(node int, e end) {
	if node == 0 {
		s.from = e
	} else {
		s.to = e
	}
}

// attachOurs attaches a pod with the built plugin and routes its podCIDR in the
// VPC.
func attachOurs(ctx context.Context, box *netns.Box, node int) (end, error) {
	n := box.Nodes[node]
	p, err := n.Attach(ctx, fmt.Sprintf("ours-%d", node))
	if err != nil {
		return end{}, err
	}
	return end{p.Namespace, p.Addresses[0]}, box.Route(n.PodCIDRs[0], n.Addresses[0])
}

// attachByHand is the shape with nothing but what it needs: a bridge, a port, a
// route in the VPC.
func attachByHand(_ context.Context, box *netns.Box, node int) (end, error) {
	e, cidr, err := attachBridged(box, node, 201, "hand0", box.MTU)
	if err != nil {
		return end{}, err
	}
	return e, box.Route(cidr, box.Nodes[node].Addresses[0])
}

// attachBridged puts a pod behind a bridge of its own, made by hand.
func attachBridged(box *netns.Box, node, net int, bridge string, mtu int) (end, netip.Prefix, error) {
	n := box.Nodes[node]
	ns, err := sandbox.Create(fmt.Sprintf("%s-%s-%d", box.Name, bridge, node))
	if err != nil {
		return end{}, netip.Prefix{}, err
	}
	cidr := netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", net, node))
	gateway := cidr.Addr().Next()
	err = in(n.Namespace, `
		ip link add `+bridge+` mtu `+fmt.Sprint(mtu)+` type bridge
		ip address add `+netip.PrefixFrom(gateway, 24).String()+` dev `+bridge+`
		ip link set `+bridge+` up
		ip link add `+bridge+`p mtu `+fmt.Sprint(mtu)+` master `+bridge+` type veth peer name eth0 mtu `+fmt.Sprint(mtu)+` netns `+ns.Name+`
		ip link set `+bridge+`p up`)
	if err != nil {
		return end{}, cidr, err
	}
	return end{ns, gateway.Next()}, cidr, in(ns, `
		ip address add `+netip.PrefixFrom(gateway.Next(), 24).String()+` dev eth0
		ip link set eth0 up
		ip route add default via `+gateway.String())
}

// attachOverlay is a pod whose packets cross the VPC inside VXLAN, as widespread
// overlays send them: one tunnel interface per node, an entry per peer, nothing
// learned.
func attachOverlay(_ context.Context, box *netns.Box, node int) (end, error) {
	const header = 50 // bytes of Ethernet, IPv4, UDP and VXLAN (RFC 7348)
	n, peer := box.Nodes[node], box.Nodes[1-node]
	e, _, err := attachBridged(box, node, 202, "over0", box.MTU-header)
	if err != nil {
		return end{}, err
	}
	mac := func(node int) string { return fmt.Sprintf("0e:00:00:00:00:%02x", node+1) }
	there := fmt.Sprintf("10.202.%d.0", 1-node)
	return e, in(n.Namespace, `
		ip link add vxlan0 mtu `+fmt.Sprint(box.MTU-header)+` address `+mac(node)+` type vxlan id 1 local `+n.Addresses[0].String()+` dev eth0 dstport 8472 nolearning
		ip address add 10.202.`+fmt.Sprint(node)+`.0/32 dev vxlan0
		ip link set vxlan0 up
		ip neighbor add `+there+` lladdr `+mac(1-node)+` dev vxlan0
		bridge fdb append `+mac(1-node)+` dev vxlan0 dst `+peer.Addresses[0].String()+`
		ip route add `+there+`/24 via `+there+` dev vxlan0 onlink`)
}

// attachPTP attaches a pod with the reference plugin ptp and routes its range in
// the VPC.
func attachPTP(ctx context.Context, box *netns.Box, node int) (end, error) {
	n := box.Nodes[node]
	cidr := netip.MustParsePrefix(fmt.Sprintf("10.203.%d.0/24", node))
	name := fmt.Sprintf("%s-ptp-%d", box.Name, node)
	ns, err := sandbox.Create(name)
	if err != nil {
		return end{}, err
	}
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": []any{map[string]any{
		"type": "ptp", "mtu": box.MTU, "ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(box.Dir, "host-local"),
			"ranges": [][]map[string]any{{{"subnet": cidr.String()}}},
			"routes": []map[string]any{{"dst": "0.0.0.0/0"}},
		},
	}}})
	if err != nil {
		return end{}, err
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return end{}, err
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{box.Programs}, filepath.Join(box.Dir, "ptp-cache"), nil)
	err = n.Namespace.Do(func() error {
		_, err := cni.AddNetworkList(ctx, list, &libcni.RuntimeConf{ContainerID: name, NetNS: ns.Path(), IfName: "eth0"})
		return err
	})
	if err != nil {
		return end{}, err
	}
	return end{ns, cidr.Addr().Next().Next()}, box.Route(cidr, n.Addresses[0])
}

// in runs the lines of a script inside a namespace.
func in(ns *sandbox.Namespace, script string) error {
	out, err := ns.Try("sh", "-ec", script)
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out))
	}
	return nil
}
