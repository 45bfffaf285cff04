package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNameIsValidAndDistinct(t *testing.T) {
	long := strings.Repeat("a", 62) + "." + strings.Repeat("b", 62) + "." + strings.Repeat("c", 62) + "." + strings.Repeat("d", 52)
	seen := map[string]string{}
	for _, route := range []struct{ situation, node, table, destination string }{
		{"plain", "node-1", "rtb-1", "10.244.1.0/24"},
		{"other node", "node-2", "rtb-1", "10.244.1.0/24"},
		{"other table", "node-1", "rtb-2", "10.244.1.0/24"},
		{"other destination", "node-1", "rtb-1", "10.244.2.0/24"},
		{"IPv6", "node-1", "rtb-1", "fd00:10:244:1::/64"},
		{"no destination", "node-1", "", ""},
		{"table as a path in capitals", "node-1", "/subscriptions/S/routeTables/T", "10.244.1.0/24"},
		{"full domain name", "node-1.eu-west-1.compute.internal", "rtb-1", "10.244.1.0/24"},
		{"boundaries moved", "node-1r", "tb-1", "10.244.1.0/24"},
		{"longest node name", long + "." + strings.Repeat("e", 11), "rtb-1", "10.244.1.0/24"},
		{"longest node name, other end", long + "." + strings.Repeat("f", 11), "rtb-1", "10.244.1.0/24"},
		{"cut at a dot", long + ".x", "rtb-1", "10.244.1.0/24"},
	} {
		t.Run(route.situation, func(t *testing.T) {
			name := Name(route.node, route.table, route.destination)
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Errorf("name %q is refused: %v", name, problems)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("name %q is that of %q too", name, other)
			}
			seen[name] = route.situation
			if again := Name(route.node, route.table, route.destination); again != name {
				t.Errorf("name is %q, then %q", name, again)
			}
		})
	}
}

func TestEveryStateIsListedOnce(t *testing.T) {
	seen := map[State]bool{}
	for _, s := range States() {
		if seen[s] {
			t.Errorf("%s is listed twice", s)
		}
		seen[s] = true
	}
	if len(seen) != 12 {
		t.Errorf("%d states, want 12", len(seen))
	}
}
