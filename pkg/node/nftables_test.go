package node_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func ensureNFT(t *testing.T, in *sandbox.Namespace, m node.Masquerade) (changed bool) {
	t.Helper()
	return ensure(t, in, nft, m)
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
