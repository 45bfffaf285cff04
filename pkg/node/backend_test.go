package node_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// TestR042BackendOfTheHost finds the packet filter that the host uses, by real
// rules of each kind, with and without our own in place.
func TestR042BackendOfTheHost(t *testing.T) {
	const legacyRule, nftRule = "iptables-legacy -A FORWARD -j ACCEPT", "nft add rule inet strangers c accept"
	const nftTable = "nft 'add table inet strangers; add chain inet strangers c { type filter hook forward priority 0; }'"
	for name, c := range map[string]struct {
		setup   string
		want    node.FilterFacts
		backend node.Backend
		warns   bool
	}{
		"bare host": {"", node.FilterFacts{}, node.BackendNFTables, false},
		"nft only": {
			nftTable + ";" + nftRule, node.FilterFacts{NFTables: []string{"inet strangers"}}, node.BackendNFTables, false,
		},
		"legacy only": {
			legacyRule, node.FilterFacts{LegacyRules: []string{"ip filter"}}, node.BackendIPTables, false,
		},
		"legacy of IPv6 only": {
			"ip6tables-legacy -t nat -A POSTROUTING -j RETURN", node.FilterFacts{LegacyRules: []string{"ip6 nat"}}, node.BackendIPTables, false,
		},
		"legacy merely listed": {"iptables-legacy -L", node.FilterFacts{}, node.BackendNFTables, false},
		"both": {
			legacyRule + ";" + nftTable,
			node.FilterFacts{LegacyRules: []string{"ip filter"}, NFTables: []string{"inet strangers"}},
			node.BackendNFTables, true,
		},
		"legacy drop policy": {
			"iptables-legacy -P FORWARD DROP",
			node.FilterFacts{LegacyRules: []string{"ip filter"}, Drops: []string{"iptables-legacy ip filter FORWARD"}},
			node.BackendIPTables, false,
		},
		"R043 drop in an nft table": {
			"nft 'add table inet fw; add chain inet fw c { type filter hook forward priority 0; policy drop; }'",
			node.FilterFacts{NFTables: []string{"inet fw"}, Drops: []string{"nftables inet fw c"}},
			node.BackendNFTables, false,
		},
		"drop policy of iptables-nft": {
			"iptables-nft -P FORWARD DROP",
			node.FilterFacts{NFTables: []string{"ip filter"}, Drops: []string{"nftables ip filter FORWARD"}},
			node.BackendNFTables, false,
		},
		"a bridge's drop is not ours to meet": {
			"nft 'add table bridge b; add chain bridge b c { type filter hook forward priority 0; policy drop; }'",
			node.FilterFacts{NFTables: []string{"bridge b"}},
			node.BackendNFTables, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			host := sandbox.New(t, "host")
			host.Run(t, "sh", "-ec", c.setup)
			check := func(when string) {
				t.Helper()
				var got node.FilterFacts
				if err := host.Do(func() (err error) { got, err = node.ReadFilter("/proc/thread-self/net"); return err }); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("%s: %s", when, d)
				}
				if b, warning := got.Backend(); b != c.backend || (warning != "") != c.warns {
					t.Errorf("%s: chose %s, warning %q", when, b, warning)
				}
			}
			check("before our rules")
			for _, b := range backends[:2] {
				if b.name == string(c.backend) {
					ensure(t, host, b.open, edgeRules())
					check("with our rules in place")
				}
			}
		})
	}
}

// TestLegacyTablesWithoutTheirProgram is a container's situation: the kernel
// shows that legacy tables are in use, and nothing is there to read them.
func TestLegacyTablesWithoutTheirProgram(t *testing.T) {
	host := sandbox.New(t, "host")
	host.Run(t, "iptables-legacy", "-P", "FORWARD", "DROP")
	t.Setenv("PATH", t.TempDir())
	var got node.FilterFacts
	if err := host.Do(func() (err error) { got, err = node.ReadFilter("/proc/thread-self/net"); return err }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(node.FilterFacts{LegacyUnread: []string{"ip"}}, got); d != "" {
		t.Error(d)
	}
	if b, warning := got.Backend(); b != node.BackendNFTables || !strings.Contains(warning, "iptables-legacy is not there") {
		t.Errorf("chose %s, warning %q", b, warning)
	}
}
