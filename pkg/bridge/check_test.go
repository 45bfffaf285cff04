package bridge_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// R030: each fault is named, and named alone.
func TestCheckNamesWhatDiffers_R030(t *testing.T) {
	type scene struct {
		node, pod *sandbox.Namespace
		expected  *bridge.Expected
	}
	inNode := func(script string) func(*testing.T, scene) {
		return func(t *testing.T, s scene) {
			s.node.Run(t, "sh", "-ec", strings.ReplaceAll(script, "PORT", s.expected.Owner.PortName()))
		}
	}
	inPod := func(script string) func(*testing.T, scene) {
		return func(t *testing.T, s scene) { s.pod.Run(t, "sh", "-ec", script) }
	}
	tests := map[string]struct {
		damage func(*testing.T, scene)
		want   []string // empty when nothing differs
	}{
		"nothing":                    {func(*testing.T, scene) {}, nil},
		"bridge gone":                {inNode("ip link del cbr0"), []string{"bridge cbr0", "missing"}},
		"bridge down":                {inNode("ip link set cbr0 down"), []string{"bridge cbr0", "down"}},
		"bridge another kind":        {inNode("ip link del cbr0; ip link add cbr0 type veth peer name x"), []string{"bridge cbr0", "another kind"}},
		"IPv4 gateway gone":          {inNode("ip addr del 10.244.1.1/24 dev cbr0"), []string{"bridge cbr0 address 10.244.1.1/24", "missing"}},
		"IPv6 gateway gone":          {inNode("ip addr del fd00:10:244:1::1/64 dev cbr0"), []string{"bridge cbr0 address fd00:10:244:1::1/64", "missing"}},
		"host veth gone":             {inNode("ip link del PORT"), []string{"host veth pod", "missing"}},
		"host veth off the bridge":   {inNode("ip link set PORT nomaster"), []string{"host veth pod", "no port of cbr0"}},
		"host veth down":             {inNode("ip link set PORT down"), []string{"host veth pod", "down"}},
		"hairpin off":                {inNode("ip link set PORT type bridge_slave hairpin off"), []string{"hairpin", "off, want on"}},
		"host MTU changed":           {inNode("ip link set PORT mtu 1400"), []string{"host veth pod", "MTU is 1400, want 1500"}},
		"claim gone":                 {inNode("ip link property del dev PORT altname fd00-10-244-1--7"), []string{"claim on address fd00:10:244:1::7", "missing"}},
		"namespace gone":             {func(_ *testing.T, s scene) { s.expected.NetNS = "/run/netns/none" }, []string{"network namespace /run/netns/none"}},
		"interface renamed":          {inPod("ip link set eth0 down; ip link set eth0 name eth7"), []string{"pod interface eth0", "missing"}},
		"interface another":          {inPod("ip link set eth0 down; ip link set eth0 name eth7; ip link add eth0 type veth peer name x"), []string{"pod interface eth0", "another link", "peer of pod"}},
		"interface down":             {inPod("ip link set eth0 down"), []string{"pod interface eth0", "down"}},
		"MAC changed":                {inPod("ip link set eth0 address 02:00:00:00:00:01"), []string{"pod interface eth0 MAC", "02:00:00:00:00:01", "0a:58:0a:f4:01:07"}},
		"pod MTU changed":            {inPod("ip link set eth0 mtu 1400"), []string{"pod interface eth0 MTU", "1400, want 1500"}},
		"IPv4 address gone":          {inPod("ip addr del 10.244.1.7/24 dev eth0"), []string{"pod interface eth0 address 10.244.1.7/24", "missing"}},
		"IPv6 address gone":          {inPod("ip addr del fd00:10:244:1::7/64 dev eth0"), []string{"pod interface eth0 address fd00:10:244:1::7/64", "missing"}},
		"prefix length changed":      {inPod("ip addr del 10.244.1.7/24 dev eth0; ip addr add 10.244.1.7/25 dev eth0; ip route add default via 10.244.1.1"), []string{"address 10.244.1.7/24", "missing"}},
		"default route gone":         {inPod("ip route del default"), []string{"pod route 0.0.0.0/0 via 10.244.1.1", "missing"}},
		"IPv6 default route gone":    {inPod("ip -6 route del default"), []string{"pod route ::/0 via fd00:10:244:1::1", "missing"}},
		"default route elsewhere":    {inPod("ip route replace default via 10.244.1.9"), []string{"pod route 0.0.0.0/0 via 10.244.1.1", "missing"}},
		"addresses beside the pod's": {inPod("ip addr add 10.9.9.9/32 dev eth0; ip route add 198.51.100.0/24 via 10.244.1.1"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n, pod := newNode(t), sandbox.New(t, "pod")
			b := open(t, n, "cbr0")
			ensure(t, n, b, dual)
			p := port(pod, "one")
			a := mustAttach(t, n, b, p, candidate(7))
			e := bridge.Expected{Owner: p.Owner, NetNS: pod.Path(), Gateways: dual.Gateways, Hairpin: true, MTU: 1500, Routes: a.Routes, MAC: a.PodMAC}
			for _, x := range a.Addresses {
				e.Addresses = append(e.Addresses, x.Prefix)
			}
			tt.damage(t, scene{n, pod, &e})
			err := n.Do(func() error { return b.Check(e) })
			var mismatch *bridge.MismatchError
			if tt.want == nil {
				if err != nil {
					t.Errorf("nothing differs, and Check says %v", err)
				}
				return
			}
			if !errors.As(err, &mismatch) {
				t.Fatalf("got %v, want a MismatchError", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// What CHECK is not told, such as the MTU before version 1.1.0 of the protocol,
// it does not miss.
func TestCheckWithoutMTUAndMAC(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(pod, "one")
	p.MTU, p.MAC = 1400, net.HardwareAddr{2, 0, 0, 0, 0, 9}
	mustAttach(t, n, b, p, candidate(7))
	e := bridge.Expected{Owner: p.Owner, NetNS: pod.Path(), Hairpin: true, Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.7/24")}}
	if err := n.Do(func() error { return b.Check(e) }); err != nil {
		t.Error(err)
	}
	pod.Run(t, "ip", "link", "set", "eth0", "mtu", "1300")
	if err := n.Do(func() error { return b.Check(e) }); err == nil || !strings.Contains(err.Error(), "1300, want 1400") {
		t.Errorf("ends of different MTU: %v", err)
	}
}
