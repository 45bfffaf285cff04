package node_test

import (
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// TestR038FlushedIPTablesComeBack empties the built-in chains and ours.
func TestR038FlushedIPTablesComeBack(t *testing.T) {
	for _, b := range backends[1:] {
		for _, tamper := range []string{
			"-t nat -F",
			"-t nat -F POSTROUTING",
			"-t nat -D POSTROUTING 1",
		} {
			t.Run(b.name+" "+tamper, func(t *testing.T) {
				e := newEdge(t)
				ensure(t, e.host, b.open, edgeRules())
				e.host.Run(t, b.name, strings.Fields(tamper)...)
				if got := seenFrom(t, e.pod, e.beyond, "203.0.113.1"); got == "172.31.0.2" {
					t.Fatal("the rules are still at work, so this proves nothing")
				}
				if !ensure(t, e.host, b.open, edgeRules()) {
					t.Error("not noticed")
				}
				if got := seenFrom(t, e.pod, e.beyond, "203.0.113.1"); got != "172.31.0.2" {
					t.Errorf("after the repair the other side saw %s", got)
				}
			})
		}
	}
}

// TestR043ForwardIsAcceptedUnderADropPolicy is the documented integration with a
// host firewall whose FORWARD policy is drop.
func TestR043ForwardIsAcceptedUnderADropPolicy(t *testing.T) {
	for _, b := range backends[1:] {
		t.Run(b.name, func(t *testing.T) {
			e := newEdge(t)
			for _, tool := range []string{b.name, strings.Replace(b.name, "iptables", "ip6tables", 1)} {
				e.host.Run(t, tool, "-P", "FORWARD", "DROP")
			}
			if got := seenFrom(t, e.pod, e.beyond, "172.31.0.1"); !strings.HasPrefix(got, "unreachable") {
				t.Fatalf("the policy does not drop: the other side saw %s", got)
			}
			forward := func() (changed bool) {
				inside(t, e.host, b.open, func(f firewall) (err error) {
					changed, err = f.(*node.IPTables).EnsureForward("cbr0")
					return err
				})
				return changed
			}
			if !forward() || forward() {
				t.Error("the first time must change the rules, the second must not")
			}
			for _, dst := range []string{"172.31.0.1", "fd00:172:31::1"} {
				if got := seenFrom(t, e.pod, e.beyond, dst); !strings.HasPrefix(got, "10.244.1.2") && !strings.HasPrefix(got, "fd00:10:244:1::2") {
					t.Errorf("to %s the other side saw %s", dst, got)
				}
			}
		})
	}
}
