package runtime_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
)

// Addresses of the node and of the VPC's router, see cri.Start.
var (
	nodeAddrs = []netip.Addr{netip.MustParseAddr("172.31.0.11"), netip.MustParseAddr("fd00:172:31::11")}
	vpcAddrs  = []netip.Addr{netip.MustParseAddr("172.31.0.1"), netip.MustParseAddr("fd00:172:31::1")}
)

func TestHostPort(t *testing.T) {
	n := startNode(t, alone)
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run("by "+backend, func(t *testing.T) {
			n.Configure(t, conflist{ranges: dualStack, after: []map[string]any{portmap(backend), bandwidth}}.bytes(n))
			before := settled(t, n)

			p := pod("web")
			p.Ports = []cri.Port{{Host: 18080, Pod: 8080}}
			s := run(t, n, p)
			other := run(t, n, pod("client"))
			for i, node := range nodeAddrs {
				checkCaller(t, n.VPC.Do, onPort(node, 18080), vpcAddrs[i])
				for who, p := range map[string]*cri.Sandbox{"another pod": other, "the pod itself": s} {
					if _, err := caller(inPod(p), onPort(node, 18080)); err != nil {
						t.Errorf("%s calls the host port on %s: %v", who, node, err)
					}
				}
			}
			if _, err := caller(n.Network.Do, "127.0.0.1:18080"); err != nil {
				t.Errorf("the node reaches the host port by its loopback address: %v", err)
			}

			remove(t, n, s.ID)
			remove(t, n, other.ID)
			if from, err := caller(n.VPC.Do, onPort(nodeAddrs[0], 18080)); err == nil {
				t.Errorf("the host port of a removed pod still answers, to %s", from)
			}
			checkInventory(t, n, before)
		})
	}
}

func TestBandwidth(t *testing.T) {
	n := startNode(t, chained)
	before := settled(t, n)

	p := pod("slow")
	p.Annotations = map[string]string{
		"kubernetes.io/ingress-bandwidth": "8M",
		"kubernetes.io/egress-bandwidth":  "16M",
	}
	s := run(t, n, p)
	var rates []uint64 // bytes per second
	err := n.Network.Do(func() error {
		queues, err := netlink.QdiscList(nil)
		for _, q := range queues {
			if tbf, ok := q.(*netlink.Tbf); ok {
				rates = append(rates, tbf.Rate)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sorted := cmpopts.SortSlices(func(a, b uint64) bool { return a < b })
	if diff := cmp.Diff([]uint64{1_000_000, 2_000_000}, rates, sorted); diff != "" {
		t.Errorf("rates in bytes per second of the queues on the node (-want +got):\n%s", diff)
	}
	checkCaller(t, n.Network.Do, onPort(s.Addresses[0], 8080), netip.MustParseAddr("10.244.1.1"))

	remove(t, n, s.ID)
	checkInventory(t, n, before)
}
