package netns_test

import (
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// The instrument itself: what it is there to find, it finds.
func TestMatrixSeesNAT(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{Nodes: 2}, 1)
	control(t, box)
	masquerade(t, box.Nodes[0].Namespace)
	want := map[string]bool{"pod-1a reaches node-2": true, "pod-1a reaches pod-2a": true}
	expected := netns.Expect(box.Nodes...)
	for _, cluster := range box.ClusterCIDRs {
		found := map[string]int{}
		for _, err := range netns.Judge(netns.Matrix(t.Context(), box.Hosts(), cluster.Addr(), expected), expected) {
			pair, rest, _ := strings.Cut(err.Error(), " over ")
			if !want[pair] || !strings.Contains(rest, "strange address") {
				t.Errorf("%s: not what masquerading does: %v", cluster, err)
			}
			found[pair]++
		}
		for pair := range want {
			if found[pair] != 2 {
				t.Errorf("%s: %s under a strange address over %d protocols, want 2", cluster, pair, found[pair])
			}
		}
	}
}

// masquerade has a node translate whatever leaves by its uplink.
func masquerade(t *testing.T, ns *sandbox.Namespace) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyINet})
		chain := c.AddChain(&nftables.Chain{
			Name: "out", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte("eth0\x00")},
			&expr.Masq{},
		}})
		return c.Flush()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A box without routes, yet with somebody who is reached: the instrument does
// not take what it expects for what it sees.
func TestJudgeSeesWhoShouldNotMeet(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{Nodes: 2}, 1)
	control(t, box)
	none, all := netns.Expect(), netns.Expect(box.Nodes...)
	for _, cluster := range box.ClusterCIDRs {
		cells := netns.Matrix(t.Context(), box.Hosts(), cluster.Addr(), all)
		// Of 4 hosts, each pod meets the node and the pod beyond, there and back.
		const crossings, protocols = 6, 2
		if wrong := netns.Judge(cells, none); len(wrong) != crossings*protocols {
			t.Errorf("%s: %d complaints, want %d: %v", cluster, len(wrong), crossings*protocols, wrong)
		}
	}
}
