package node_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// A firewall is what every back end can do.
type firewall interface {
	Ensure(node.Masquerade) (changed bool, err error)
	Remove() error
}

// The back ends, opened in the calling thread's network namespace.
func nft() (firewall, error)    { return node.NewNFTables() }
func legacy() (firewall, error) { return node.NewIPTables("iptables-legacy", "ip6tables-legacy") }
func iptNFT() (firewall, error) { return node.NewIPTables("iptables-nft", "ip6tables-nft") }

var backends = []struct {
	name string
	open func() (firewall, error)
}{{"nftables", nft}, {"iptables-legacy", legacy}, {"iptables-nft", iptNFT}}

// An edge is a node with one pod behind cbr0 and a machine beyond its uplink
// that has an address in the VPC and one outside it.
type edge struct{ pod, host, beyond *sandbox.Namespace }

func newEdge(t *testing.T) edge {
	e := edge{sandbox.New(t, "pod"), sandbox.New(t, "host"), sandbox.New(t, "beyond")}
	for _, args := range []string{
		"link add cbr0 type bridge",
		"link set cbr0 up",
		"addr add 10.244.1.1/24 dev cbr0",
		"addr add fd00:10:244:1::1/64 dev cbr0 nodad",
		"link add pod0 master cbr0 type veth peer name eth0 netns " + e.pod.Name,
		"link set pod0 up",
		"link add uplink type veth peer name eth0 netns " + e.beyond.Name,
		"link set uplink up",
		"addr add 172.31.0.2/24 dev uplink",
		"addr add fd00:172:31::2/64 dev uplink nodad",
		"route add default via 172.31.0.1",
		"-6 route add default via fd00:172:31::1",
	} {
		e.host.Run(t, "ip", strings.Fields(args)...)
	}
	e.host.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	for _, args := range []string{
		"link set eth0 up",
		"addr add 10.244.1.2/24 dev eth0",
		"addr add fd00:10:244:1::2/64 dev eth0 nodad",
		"route add default via 10.244.1.1",
		"-6 route add default via fd00:10:244:1::1",
	} {
		e.pod.Run(t, "ip", strings.Fields(args)...)
	}
	for _, args := range []string{
		"link set eth0 up",
		"addr add 172.31.0.1/24 dev eth0",
		"addr add fd00:172:31::1/64 dev eth0 nodad",
		"addr add 203.0.113.1/32 dev lo",
		"addr add 2001:db8::1/128 dev lo nodad",
		"route add 10.244.1.0/24 via 172.31.0.2",
		"-6 route add fd00:10:244:1::/64 via fd00:172:31::2",
	} {
		e.beyond.Run(t, "ip", strings.Fields(args)...)
	}
	return e
}

// seenFrom connects from one namespace to an address of another and returns
// the peer address that the other side saw.
func seenFrom(t *testing.T, from, to *sandbox.Namespace, dst string) string {
	t.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(dst, "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	saw := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			saw <- err.Error()
			return
		}
		defer c.Close()
		saw <- netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().String()
	}()
	if err := from.Do(func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 3*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}); err != nil {
		return "unreachable: " + err.Error()
	}
	return <-saw
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func edgeRules() node.Masquerade {
	return node.Masquerade{
		PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24"), prefix("fd00:10:244:1::/64")},
		Bridge:   "cbr0",
		Keep:     node.SpecialUse(),
	}
}

// inside opens a back end in a namespace and uses it there.
func inside(t *testing.T, in *sandbox.Namespace, open func() (firewall, error), use func(firewall) error) {
	t.Helper()
	if err := in.Do(func() error {
		f, err := open()
		if err != nil {
			return err
		}
		return use(f)
	}); err != nil {
		t.Fatal(err)
	}
}

func ensure(t *testing.T, in *sandbox.Namespace, open func() (firewall, error), m node.Masquerade) (changed bool) {
	t.Helper()
	inside(t, in, open, func(f firewall) (err error) {
		changed, err = f.Ensure(m)
		return err
	})
	return changed
}

// ruleset is everything that any packet filter of a namespace holds.
func ruleset(t *testing.T, in *sandbox.Namespace) string {
	t.Helper()
	all := in.Run(t, "nft", "list", "ruleset")
	for _, tool := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		for line := range strings.Lines(in.Run(t, tool)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") { // times and counters
				all += line
			}
		}
	}
	return all
}

func TestOnlyTrafficLeavingTheVPCIsMasqueraded(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			e := newEdge(t)
			ensure(t, e.host, b.open, edgeRules())
			for _, c := range []struct{ what, dst, want string }{
				{"IPv4 inside the VPC", "172.31.0.1", "10.244.1.2"},
				{"IPv6 inside the VPC", "fd00:172:31::1", "fd00:10:244:1::2"},
				{"IPv4 outside the VPC", "203.0.113.1", "172.31.0.2"},
				{"IPv6 outside the VPC", "2001:db8::1", "fd00:172:31::2"},
			} {
				if got := seenFrom(t, e.pod, e.beyond, c.dst); got != c.want {
					t.Errorf("%s: the other side saw %s, want %s", c.what, got, c.want)
				}
			}
			if got := seenFrom(t, e.pod, e.host, "10.244.1.1"); got != "10.244.1.2" {
				t.Errorf("the node itself saw %s", got)
			}
		})
	}
}

func TestMostSpecificEntryWins(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			e := newEdge(t)
			m := edgeRules()
			m.Exceptions = []netip.Prefix{prefix("172.31.0.0/24")}
			ensure(t, e.host, b.open, m)
			if got := seenFrom(t, e.pod, e.beyond, "172.31.0.1"); got != "172.31.0.2" {
				t.Errorf("the exception: the other side saw %s, want the node's address", got)
			}
			m.Keep = append(m.Keep, prefix("172.31.0.1/32"))
			ensure(t, e.host, b.open, m)
			if got := seenFrom(t, e.pod, e.beyond, "172.31.0.1"); got != "10.244.1.2" {
				t.Errorf("kept inside the exception: the other side saw %s, want the pod's address", got)
			}
		})
	}
}

func TestRepeatingChangesNothing(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			host := sandbox.New(t, "host")
			if !ensure(t, host, b.open, edgeRules()) {
				t.Error("first time: nothing changed")
			}
			before := ruleset(t, host)
			if ensure(t, host, b.open, edgeRules()) {
				t.Error("second time: changed again")
			}
			if after := ruleset(t, host); after != before {
				t.Errorf("rules moved:\n%s\n%s", before, after)
			}
		})
	}
}

func TestRemoveLeavesOthersRulesAlone(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			host := sandbox.New(t, "host")
			host.Run(t, "nft", "add table inet strangers; add chain inet strangers c { type filter hook forward priority 0; policy drop; }")
			for _, tool := range []string{"iptables-legacy", "iptables-nft"} {
				host.Run(t, tool, "-t", "nat", "-A", "POSTROUTING", "-s", "192.0.2.0/24", "-j", "MASQUERADE")
				host.Run(t, tool, "-A", "FORWARD", "-s", "192.0.2.0/24", "-j", "ACCEPT")
			}
			for _, tool := range []string{"ip6tables-legacy", "ip6tables-nft"} {
				host.Run(t, tool, "-t", "nat", "-A", "POSTROUTING", "-s", "2001:db8::/64", "-j", "MASQUERADE")
				host.Run(t, tool, "-A", "FORWARD", "-s", "2001:db8::/64", "-j", "ACCEPT")
			}
			before := ruleset(t, host)
			ensure(t, host, b.open, edgeRules())
			for range 2 { // the second time there is nothing left to remove
				inside(t, host, b.open, firewall.Remove)
			}
			if after := ruleset(t, host); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

func TestChangedRangesReplaceTheOldRules(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			e := newEdge(t)
			m := edgeRules()
			m.PodCIDRs = []netip.Prefix{prefix("10.244.9.0/24")}
			ensure(t, e.host, b.open, m)
			if !ensure(t, e.host, b.open, edgeRules()) {
				t.Error("nothing changed")
			}
			if rules := ruleset(t, e.host); strings.Contains(rules, "10.244.9.0") {
				t.Errorf("the old range is still there:\n%s", rules)
			}
			if got := seenFrom(t, e.pod, e.beyond, "203.0.113.1"); got != "172.31.0.2" {
				t.Errorf("the other side saw %s", got)
			}
		})
	}
}
