package node_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

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
		c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
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

// ensureNFT is Ensure inside a namespace.
func ensureNFT(t *testing.T, in *sandbox.Namespace, m node.Masquerade) (changed bool) {
	t.Helper()
	if err := in.Do(func() error {
		n, err := node.NewNFTables()
		if err != nil {
			return err
		}
		changed, err = n.Ensure(m)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestOnlyTrafficLeavingTheVPCIsMasqueraded(t *testing.T) {
	e := newEdge(t)
	ensureNFT(t, e.host, edgeRules())
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
}

func TestExceptionInsideKeepIsMasqueraded(t *testing.T) {
	e := newEdge(t)
	m := edgeRules()
	m.Exceptions = []netip.Prefix{prefix("172.31.0.0/24")}
	ensureNFT(t, e.host, m)
	if got := seenFrom(t, e.pod, e.beyond, "172.31.0.1"); got != "172.31.0.2" {
		t.Errorf("the other side saw %s, want the node's address", got)
	}
}

// TestR037RulesDependOnlyOnTheRanges is the constant rule set: repeating
// changes nothing, and 500 entries add no rule.
func TestR037RulesDependOnlyOnTheRanges(t *testing.T) {
	host := sandbox.New(t, "host")
	if !ensureNFT(t, host, edgeRules()) {
		t.Error("first time: nothing changed")
	}
	before := host.Run(t, "nft", "-a", "list", "table", "inet", "vpcroute")
	if ensureNFT(t, host, edgeRules()) {
		t.Error("second time: changed again")
	}
	if after := host.Run(t, "nft", "-a", "list", "table", "inet", "vpcroute"); after != before {
		t.Errorf("rules moved:\n%s\n%s", before, after)
	}
	m := edgeRules()
	for i := range 500 {
		m.Keep = append(m.Keep, prefix(fmt.Sprintf("203.0.%d.%d/32", i/100, i%100*2)))
	}
	ensureNFT(t, host, m)
	if n := strings.Count(host.Run(t, "nft", "list", "table", "inet", "vpcroute"), " masquerade "); n != 2 {
		t.Errorf("%d masquerade rules with 500 entries, want one per family", n)
	}
	if ensureNFT(t, host, m) {
		t.Error("500 entries are written again and again")
	}
}

// TestR038TamperingIsRepaired flushes, deletes and edits our rules in every
// way that a firewall reload or a hand might.
func TestR038TamperingIsRepaired(t *testing.T) {
	e := newEdge(t)
	for _, tamper := range []string{
		"flush ruleset",
		"delete table inet vpcroute",
		"flush table inet vpcroute",
		"flush chain inet vpcroute egress",
		"flush set inet vpcroute keep4",
		"add element inet vpcroute keep4 { 203.0.113.1 }",
		"delete element inet vpcroute pods6 { fd00:10:244:1::/64 }",
		"add rule inet vpcroute egress accept",
		"insert rule inet vpcroute egress return",
	} {
		t.Run(tamper, func(t *testing.T) {
			ensureNFT(t, e.host, edgeRules())
			e.host.Run(t, "nft", tamper)
			if !ensureNFT(t, e.host, edgeRules()) {
				t.Error("not noticed")
			}
			if got := seenFrom(t, e.pod, e.beyond, "203.0.113.1"); got != "172.31.0.2" {
				t.Errorf("after the repair the other side saw %s", got)
			}
		})
	}
}

func TestOthersRulesAreLeftAlone(t *testing.T) {
	host := sandbox.New(t, "host")
	host.Run(t, "nft", "add table inet strangers; add chain inet strangers c { type filter hook forward priority 0; policy drop; }")
	before := host.Run(t, "nft", "list", "ruleset")
	ensureNFT(t, host, edgeRules())
	for range 2 { // the second time there is nothing left to remove
		if err := host.Do(func() error {
			n, err := node.NewNFTables()
			if err != nil {
				return err
			}
			return n.Remove()
		}); err != nil {
			t.Fatal(err)
		}
	}
	if after := host.Run(t, "nft", "list", "ruleset"); after != before {
		t.Errorf("left behind:\n%s", after)
	}
}

func TestInvalidMasqueradeChangesNothing(t *testing.T) {
	host := sandbox.New(t, "host")
	ensureNFT(t, host, edgeRules())
	before := host.Run(t, "nft", "list", "ruleset")
	m := edgeRules()
	m.Keep = []netip.Prefix{prefix("10.0.0.1/8")}
	err := host.Do(func() error {
		n, err := node.NewNFTables()
		if err != nil {
			return err
		}
		_, err = n.Ensure(m)
		return err
	})
	if err == nil {
		t.Error("accepted")
	}
	if after := host.Run(t, "nft", "list", "ruleset"); after != before {
		t.Errorf("rules changed:\n%s", after)
	}
}

// TestNFTReadsOurTable has the nft program, the format's own reader, accept and
// show what was written over netlink.
func TestNFTReadsOurTable(t *testing.T) {
	host := sandbox.New(t, "host")
	ensureNFT(t, host, edgeRules())
	text := host.Run(t, "nft", "list", "table", "inet", "vpcroute")
	for _, want := range []string{
		"type nat hook postrouting priority srcnat; policy accept;",
		"ip saddr @pods4 ip daddr != @keep4 oifname != \"cbr0\" masquerade fully-random",
		"ip6 saddr @pods6 ip6 daddr != @keep6 oifname != \"cbr0\" masquerade fully-random",
		"elements = { 10.244.1.0/24 }",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	check := exec.Command("nft", "-c", "-f", "-")
	check.Stdin = strings.NewReader(text)
	if err := host.Do(func() error { out, err := check.CombinedOutput(); t.Logf("%s", out); return err }); err != nil {
		t.Errorf("nft does not take its own listing: %v", err)
	}
}
