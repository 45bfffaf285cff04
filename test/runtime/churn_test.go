package runtime_test

import (
	"strings"
	"testing"
)

// R056: nothing that may be away is needed to remove pods: there is no agent
// here, and for the removal no network either.
func TestHundredSandboxes(t *testing.T) {
	n := startNode(t, alone)
	before := settled(t, n)
	sandboxes := runAll(t, n, numbered("web", 100)...)
	checkDistinct(t, sandboxes...)
	for _, s := range sandboxes {
		for _, a := range s.Addresses {
			if got, want := alias(t, n, a), "default/"+s.Pod.Name+" "; !strings.HasPrefix(got, want) {
				t.Errorf("the link of address %s is said to be of %q, want %q", a, got, want)
			}
		}
	}
	n.VPC.Run(t, "ip", "link", "set", "node", "down")
	removeAll(t, n, sandboxes)
	checkInventory(t, n, before)
}
