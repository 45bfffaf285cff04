package bridge_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// wantBridge checks all that the bridge of dual must be.
func wantBridge(t *testing.T, n *sandbox.Namespace, mtu int) {
	t.Helper()
	l := linkOf(t, n, "cbr0")
	if l == nil {
		t.Fatal("no cbr0")
	}
	got := map[string]any{
		"kind": l.Info.Kind, "mtu": l.MTU, "mac": l.Address, "up": slices.Contains(l.Flags, "UP"), "promiscuity": l.Promisc, "addrgen": l.AddrGen,
	}
	for _, field := range []string{"stp_state", "mcast_snooping", "nf_call_iptables", "nf_call_ip6tables"} {
		got[field] = l.Info.Data[field]
	}
	want := map[string]any{
		"kind": "bridge", "mtu": mtu, "mac": "0a:58:0a:f4:01:01", "up": true, "promiscuity": 0, "addrgen": "none",
		"stp_state": 0.0, "mcast_snooping": 0.0, "nf_call_iptables": 1.0, "nf_call_ip6tables": 1.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cbr0, -want +got:\n%s", diff)
	}
	addresses := []string{"10.244.1.1/24", "fd00:10:244:1::1/64", "fe80::858:aff:fef4:101/64"}
	if diff := cmp.Diff(addresses, addressesOf(t, n, "cbr0")); diff != "" {
		t.Errorf("addresses of cbr0, -want +got:\n%s", diff)
	}
}

func TestEnsureMakesTheBridge(t *testing.T) {
	n := newNode(t)
	b := open(t, n, "cbr0")
	if mtu := ensure(t, n, b, dual); mtu != 1500 {
		t.Errorf("MTU %d", mtu)
	}
	wantBridge(t, n, 1500)
	// R016: udev's persistent-MAC policy leaves alone what was set explicitly.
	if got := assignType(t, n, "cbr0"); got != "3" {
		t.Errorf("addr_assign_type of cbr0 is %s, want 3", got)
	}
	ensure(t, n, b, dual)
	wantBridge(t, n, 1500)
}

func TestEnsureRepairsTheBridge(t *testing.T) {
	for name, damage := range map[string]string{
		"down":                    "ip link set cbr0 down",
		"another MTU":             "ip link set cbr0 mtu 1400",
		"another MAC":             "ip link set cbr0 address 02:00:00:00:00:01",
		"snooping on":             "ip link set cbr0 type bridge mcast_snooping 1",
		"STP on":                  "ip link set cbr0 type bridge stp_state 1",
		"filter off for IPv4":     "ip link set cbr0 type bridge nf_call_iptables 0",
		"filter off for IPv6":     "ip link set cbr0 type bridge nf_call_ip6tables 0",
		"address generation on":   "ip link set cbr0 addrgenmode eui64",
		"IPv4 gateway gone":       "ip addr del 10.244.1.1/24 dev cbr0",
		"IPv6 gateway gone":       "ip addr del fd00:10:244:1::1/64 dev cbr0",
		"link-local address gone": "ip addr del fe80::858:aff:fef4:101/64 dev cbr0",
		"gone":                    "ip link del cbr0",
		"made by hand":            "ip link del cbr0; ip link add cbr0 address 0a:58:0a:f4:01:01 type bridge",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			b := open(t, n, "cbr0")
			ensure(t, n, b, dual)
			n.Run(t, "sh", "-ec", damage)
			ensure(t, n, b, dual)
			got, want := addressesOf(t, n, "cbr0"), []string{"10.244.1.1/24", "fd00:10:244:1::1/64", "fe80::858:aff:fef4:101/64"}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("addresses, -want +got:\n%s", diff)
			}
			l := linkOf(t, n, "cbr0")
			if l.MTU != 1500 || l.Address != "0a:58:0a:f4:01:01" || l.AddrGen != "none" || !slices.Contains(l.Flags, "UP") ||
				l.Info.Data["stp_state"] != 0.0 || l.Info.Data["mcast_snooping"] != 0.0 || l.Info.Data["nf_call_iptables"] != 1.0 || l.Info.Data["nf_call_ip6tables"] != 1.0 {
				t.Errorf("cbr0 is %+v", l)
			}
		})
	}
}

func TestEnsureKeepsEarlierGateways(t *testing.T) {
	n := newNode(t)
	b := open(t, n, "cbr0")
	ensure(t, n, b, gateways("10.244.1.1/24"))
	ensure(t, n, b, gateways("10.244.2.1/24", "10.244.3.129/25"))
	want := []string{"10.244.1.1/24", "10.244.2.1/24", "10.244.3.129/25"}
	if diff := cmp.Diff(want, addressesOf(t, n, "cbr0")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEnsureRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		setup string
		s     bridge.Settings
		want  error
		say   string
	}{
		"a name that is another kind of link": {"ip link add cbr0 type veth peer name x", dual, bridge.ErrNotBridge, `cbr0 is a link of kind "veth"`},
		"a name that is a link's altname":     {"ip link property add dev uplink altname cbr0", dual, bridge.ErrNotBridge, "uplink"},
		"IPv6 that is off for all links":      {"sysctl -qw net.ipv6.conf.default.disable_ipv6=1 net.ipv6.conf.all.disable_ipv6=1", dual, bridge.ErrNoIPv6, "disable_ipv6"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			b := open(t, n, "cbr0")
			n.Run(t, "sh", "-ec", tt.setup)
			err := n.Do(func() error { _, err := b.Ensure(tt.s); return err })
			if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.say) || !strings.Contains(fmt.Sprint(err), "cbr0") {
				t.Errorf("got %v, want %v saying %q", err, tt.want, tt.say)
			}
		})
	}
}

// R024: the filter is on for this bridge alone; the switch for all bridges of
// the node stays as it is.
func TestOnlyThisBridgeIsFiltered_R024(t *testing.T) {
	const global = "/proc/sys/net/bridge/bridge-nf-call-iptables"
	if _, err := os.Stat(global); err != nil {
		t.Logf("br_netfilter is not loaded here, so there is no global switch to disturb: %v", err)
		return
	}
	n := newNode(t)
	n.Run(t, "sh", "-ec", "echo 0 >"+global+"; ip link add other type bridge")
	ensure(t, n, open(t, n, "cbr0"), dual)
	if got := readFile(t, n, global); got != "0" {
		t.Errorf("the global switch is %s", got)
	}
	if l := linkOf(t, n, "other"); l.Info.Data["nf_call_iptables"] != 0.0 {
		t.Errorf("another bridge is filtered: %v", l.Info.Data)
	}
	wantBridge(t, n, 1500)
}

// R023: the MTU is that of the way out of the node.
func TestMTUIsTheUplinks_R023(t *testing.T) {
	const none = "ip route del default; "
	for name, tt := range map[string]struct {
		setup string
		want  int
	}{
		"1450":                   {"ip link set uplink mtu 1450", 1450},
		"1500":                   {"ip link set uplink mtu 1500", 1500},
		"8500":                   {"ip link set uplink mtu 8500", 8500},
		"9001":                   {"ip link set uplink mtu 9001", 9001},
		"default route, not any": {"eval \"$small\"; ip addr add 10.1.0.1/24 dev small; ip link set uplink mtu 9001", 9001},
		"no default route":       {none + "ip link set uplink mtu 1450", 1450},
		"no default route, two links": {
			none + "ip link set uplink mtu 9001; eval \"$small\"; ip addr add 10.1.0.1/24 dev small",
			1300,
		},
		"no default route, another container network": {
			none + "ip link set uplink mtu 9001; ip link add docker0 type bridge; ip link set docker0 up; ip addr add 172.17.0.1/16 dev docker0",
			9001,
		},
		"several next hops":      {none + "ip link set uplink mtu 1400; ip route add default nexthop via 192.168.0.1 dev uplink nexthop via 192.168.0.2 dev uplink", 1400},
		"default route in IPv6":  {none + "ip link set uplink mtu 1390; eval \"$small\"; ip addr add 10.1.0.1/24 dev small; ip -6 addr add fd00:192::11/64 dev uplink nodad; ip -6 route add default via fd00:192::1", 1390},
		"no uplink at all":       {"ip link del uplink", 1500},
		"default by the bridge":  {none + "ip link set uplink mtu 1450; ip link add cbr0 mtu 1300 type bridge; ip link set cbr0 up; ip route add default dev cbr0", 1450},
		"default into the abyss": {none + "ip link set uplink mtu 1450; ip route add blackhole default", 1450},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.Run(t, "sh", "-ec", `small="ip link add small mtu 1300 type veth peer name x; ip link set x up; ip link set small up"; `+tt.setup)
			b := open(t, n, "cbr0")
			if got := ensure(t, n, b, gateways("10.244.1.1/24")); got != tt.want {
				t.Errorf("ports get %d, want %d", got, tt.want)
			}
			if got := linkOf(t, n, "cbr0").MTU; got != tt.want {
				t.Errorf("cbr0 has %d, want %d", got, tt.want)
			}
		})
	}
}

// R023: an MTU set by hand wins; a port with a smaller one never lowers that of
// the bridge, whatever the bridge's own is.
func TestMTUOfOnePortIsNotThatOfAll_R023(t *testing.T) {
	for _, mtu := range []int{1400, 1499, 1500, 9001} {
		n := newNode(t)
		b := open(t, n, "cbr0")
		ensure(t, n, b, bridge.Settings{Gateways: dual.Gateways, MTU: mtu})
		pod := sandbox.New(t, "pod")
		p := port(pod, "one")
		p.MTU = mtu
		mustAttach(t, n, b, p, candidate(2))
		n.Run(t, "sh", "-ec", "ip link add small mtu 1300 master cbr0 up type veth peer name x")
		for _, l := range []*ipLink{linkOf(t, n, "cbr0"), linkOf(t, n, p.Owner.PortName()), linkOf(t, pod, "eth0")} {
			if l.MTU != mtu {
				t.Errorf("%s has the MTU %d beside a port with 1300, want %d", l.Name, l.MTU, mtu)
			}
		}
	}
}

func TestManyMakeTheBridgeAtTheSameMoment(t *testing.T) {
	for range 5 {
		n := newNode(t)
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 32 {
			b := open(t, n, "cbr0")
			all.Go(func() {
				<-start
				if err := n.Do(func() error { _, err := b.Ensure(dual); return err }); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		wantBridge(t, n, 1500)
	}
}
