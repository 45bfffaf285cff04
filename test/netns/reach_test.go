package netns_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestPodsMeetOnlyOverRoutes(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 2)
	meet(t, box)
	control(t, box)
	meet(t, box, box.Nodes...)
}

func TestPodsMeetWithoutIPv6(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{Nodes: 2, IPv4Only: true}, 1)
	control(t, box)
	meet(t, box, box.Nodes...)
}

// R023: the MTU comes from the uplink and holds on every part of the way.
func TestTransfersArriveWhole(t *testing.T) {
	t.Parallel()
	for _, mtu := range []int{1450, 1500, 9001} {
		t.Run(fmt.Sprintf("uplink MTU %d", mtu), func(t *testing.T) {
			t.Parallel()
			box := raise(t, netns.Config{Nodes: 2, MTU: mtu}, 1)
			control(t, box)
			for _, n := range box.Nodes {
				checkMTU(t, n, mtu)
			}
			from, to := box.Nodes[0].Pods[0], box.Nodes[1].Pods[0]
			data := make([]byte, 10<<20)
			_, _ = rand.Read(data)
			for _, a := range to.Addresses {
				conn, err := netns.Dial(t.Context(), from.Namespace, a)
				if err != nil {
					t.Fatal(err)
				}
				if err := conn.Echo(data, patience); err != nil {
					t.Errorf("%s to %s at %s: %v", from.Name, to.Name, a, err)
				}
				_ = conn.Close()
			}
		})
	}
}

// checkMTU looks at the whole way of a node's first pod: its interface, the
// host end of its veth, and the bridge.
func checkMTU(t *testing.T, n *netns.Node, want int) {
	t.Helper()
	inPod := link(t, n.Pods[0].Namespace, func() (netlink.Link, error) { return netlink.LinkByName("eth0") })
	onHost := link(t, n.Namespace, func() (netlink.Link, error) { return netlink.LinkByIndex(inPod.ParentIndex) })
	bridge := link(t, n.Namespace, func() (netlink.Link, error) { return netlink.LinkByIndex(onHost.MasterIndex) })
	if bridge.Name != "cbr0" {
		t.Errorf("%s: the pod's veth is a port of %q, want cbr0", n.Name, bridge.Name)
	}
	for where, l := range map[string]*netlink.LinkAttrs{"the pod's eth0": inPod, "the host veth": onHost, "the bridge": bridge} {
		if l.MTU != want {
			t.Errorf("%s: %s has MTU %d, want the uplink's %d", n.Name, where, l.MTU, want)
		}
	}
}

func link(t *testing.T, ns *sandbox.Namespace, find func() (netlink.Link, error)) (attrs *netlink.LinkAttrs) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := find()
		if err == nil {
			attrs = l.Attrs()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return attrs
}

func TestDetachedPodIsForgotten(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{Nodes: 1}, 2)
	node, pod := box.Nodes[0], box.Nodes[0].Pods[0]
	address := pod.Addresses[0].String()
	node.Namespace.Run(t, "ip", "link", "show", address)
	if err := node.Detach(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if out, err := node.Namespace.Try("ip", "link", "show", address); err == nil {
		t.Errorf("%s is still somebody's after the pod was detached:\n%s", address, out)
	}
	meet(t, box, node) // the neighbor lives on
}

// Boxes use the same addresses and must not notice each other.
func TestBoxesSideBySide(t *testing.T) {
	t.Parallel()
	routed, bare := raise(t, netns.Config{Nodes: 2}, 1), raise(t, netns.Config{Nodes: 2}, 1)
	control(t, routed)
	meet(t, routed, routed.Nodes...)
	meet(t, bare)
}
