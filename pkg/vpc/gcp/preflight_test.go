package gcp_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

type finding struct {
	severity vpc.Severity
	object   string
	message  string // a part of it
}

// checkFindings wants exactly these findings, in any order, each with a fix.
func checkFindings(t *testing.T, got []vpc.Finding, want []finding) {
	t.Helper()
	left := append([]finding(nil), want...)
next:
	for _, g := range got {
		if g.Fix == "" {
			t.Errorf("no fix: %+v", g)
		}
		for i, w := range left {
			if g.Severity == w.severity && g.Object == w.object && strings.Contains(g.Message, w.message) {
				left = append(left[:i], left[i+1:]...)
				continue next
			}
		}
		t.Errorf("unwanted: %s, %s: %s", g.Severity, g.Object, g.Message)
	}
	for _, w := range left {
		t.Errorf("missing: %+v", w)
	}
}

// R082: the cluster's ranges against everything else in the network; and what
// else keeps routes from working.
func TestPreflight(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(w *world)
		want  []finding
	}{
		{"all is well, default and odd routes included", func(w *world) {
			w.addOddRoutes()
			w.RemoveRoute(theProject, "elsewhere")
		}, nil},
		{"a subnet in the cluster's range", func(w *world) {
			w.AddNetwork(theProject, theNetwork, netip.MustParsePrefix("10.244.128.0/20"))
		}, []finding{{vpc.SeverityError, "route default-route-10-244-128-0-20", "overlaps the subnet range 10.244.128.0/20"}}},
		{"a subnet around it", func(w *world) {
			w.AddNetwork(theProject, theNetwork, netip.MustParsePrefix("10.240.0.0/12"))
		}, []finding{{vpc.SeverityError, "route default-route-10-240-0-0-12", "cluster CIDR 10.244.0.0/16 overlaps the subnet range 10.240.0.0/12"}}},
		{"a peer's range", func(w *world) {
			w.AddRoute(theProject, emulated.Route{Name: "peering-route-9", Network: thePath, DestRange: "10.244.7.0/24", NextHopPeering: "to-shared"})
		}, []finding{{vpc.SeverityWarning, "route peering-route-9", "overlaps 10.244.7.0/24 of peering to-shared"}}},
		{"another cluster's route", func(w *world) {
			w.AddRoute(theProject, foreign(vpc.Route{Destination: podCIDR(8), NextHop: hop(2)}))
		}, []finding{{vpc.SeverityWarning, "route theirs-" + nameFor(podCIDR(8)), "10.244.8.0/24"}}},
		{"a network in auto mode", func(w *world) {
			w.SetAutoMode(theProject, theNetwork)
		}, []finding{{vpc.SeverityWarning, "network prod", "overlaps 10.128.0.0/9"}}},
		{"the network is gone", func(w *world) { w.RemoveNetwork(theProject, theNetwork) }, []finding{
			{vpc.SeverityError, "network prod", "does not exist in project shop-prod-1"},
		}},
		{"nearly full", func(w *world) {
			for i := range 199 {
				w.AddRoute(theProject, foreign(vpc.Route{Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24), NextHop: hop(2)}))
			}
		}, []finding{{vpc.SeverityWarning, "project shop-prod-1", "200 of 250 routes are used"}}},
		{"no permission to write", func(w *world) { w.Deny("compute.routes.create", "compute.routes.delete") }, []finding{
			{vpc.SeverityError, "permission compute.routes.create, compute.networks.updatePolicy or compute.instances.use", "Required 'compute.routes.create'"},
			{vpc.SeverityError, "permission compute.routes.delete or compute.networks.updatePolicy", "Required 'compute.routes.delete'"},
		}},
		{"no permission to read", func(w *world) {
			w.Deny("compute.networks.get", "compute.routes.list", "compute.routes.get", "compute.projects.get", "compute.globalOperations.get")
		}, []finding{
			{vpc.SeverityError, "permission compute.networks.get", "Required 'compute.networks.get'"},
			{vpc.SeverityError, "permission compute.routes.list", "Required 'compute.routes.list'"},
			{vpc.SeverityError, "permission compute.routes.get", "Required 'compute.routes.get'"},
			{vpc.SeverityError, "permission compute.projects.get", "Required 'compute.projects.get'"},
			{vpc.SeverityError, "permission compute.globalOperations.get", "Required 'compute.globalOperations.get'"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.startMachines(1, 2)
			table := w.table(t)
			apply(t, table, create(1))
			tt.setUp(w)
			before := len(w.routes())
			checkFindings(t, table.Preflight(t.Context()), tt.want)
			if n := len(w.routes()); n != before && tt.name != "the network is gone" {
				t.Errorf("the check changed %d routes into %d", before, n)
			}
		})
	}
}
