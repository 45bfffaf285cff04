package azure_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
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

// R068, R070, R081, R082, R083.
func TestPreflight(t *testing.T) {
	far := finding{vpc.SeverityWarning, "subnet vnet/far", "uses route table routes-far, which is not managed"}
	tests := []struct {
		name  string
		setUp func(w *world)
		nodes []int
		want  []finding
	}{
		{"nothing known of nodes", func(*world) {}, nil, []finding{far}},
		{"all is well, default route included", func(w *world) {
			w.AddRoute(theTable, emulated.Route{Name: "d", AddressPrefix: "0.0.0.0/0", NextHopType: "Internet"})
			w.AddRoute(theTable, emulated.Route{Name: "t", AddressPrefix: "AzureCloud", NextHopType: "Internet"})
		}, []int{1, 2}, nil},
		{"nodes in a subnet of another table", func(w *world) { w.Attach(w.near(), w.tableID(farTable)) }, []int{1}, []finding{
			{vpc.SeverityError, "subnet vnet/near", "nodes are in it, and it uses route table routes-far, which is not managed"},
			{vpc.SeverityWarning, "route table routes-near", "no subnet uses it"},
		}},
		{"nodes in a subnet of no table", func(w *world) { w.Attach(w.near(), "") }, []int{1}, []finding{
			{vpc.SeverityError, "subnet vnet/near", "nodes are in it, and it uses no route table"},
			{vpc.SeverityWarning, "route table routes-near", "no subnet uses it"},
		}},
		{"an interface that does not forward", func(w *world) { w.SetForwarding("vm-1-nic", false) }, []int{1, 2}, []finding{
			{vpc.SeverityError, "network interface vm-1-nic", "node node-1 uses it, and IP forwarding is off"},
		}},
		{"the same, nothing known of nodes", func(w *world) { w.SetForwarding("vm-1-nic", false) }, nil, []finding{
			far, {vpc.SeverityWarning, "network interface vm-1-nic", "IP forwarding is off"},
		}},
		{"the network's range and a peer's", func(w *world) {
			w.AddNetwork(theGroup, theNetwork, netip.MustParsePrefix("10.0.0.0/8"))
			w.AddPeering(theGroup, theNetwork, "hub", netip.MustParsePrefix("10.244.64.0/20"), netip.MustParsePrefix("172.16.0.0/16"))
		}, []int{1}, []finding{
			{vpc.SeverityError, "virtual network vnet", "cluster CIDR 10.244.0.0/16 overlaps the network's own range 10.0.0.0/8"},
			{vpc.SeverityWarning, "peering vnet/hub", "cluster CIDR 10.244.0.0/16 overlaps the peer's range 10.244.64.0/20"},
		}},
		{"strangers' routes, and another installation's", func(w *world) {
			w.AddRoute(theTable, emulated.Route{Name: "fw", AddressPrefix: "10.240.0.0/12", NextHopType: "VirtualAppliance", NextHopIPAddress: "10.0.63.4"})
			w.AddRoute(theTable, emulated.Route{Name: "vpcroute-0123456789abcdef-10.244.8.0-24", AddressPrefix: "10.244.8.0/24", NextHopType: "VirtualAppliance", NextHopIPAddress: "10.0.0.9"})
		}, []int{1}, []finding{
			{vpc.SeverityWarning, "route table routes-near", `route "fw" (10.240.0.0/12 to VirtualAppliance 10.0.63.4)`},
			{vpc.SeverityWarning, "route table routes-near", `route "vpcroute-0123456789abcdef-10.244.8.0-24"`},
		}},
		{"nearly full", func(w *world) {
			for i := range 8 {
				w.AddRoute(theTable, emulated.Route{Name: vmName(i), AddressPrefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24).String(), NextHopType: "None"})
			}
		}, []int{1}, []finding{{vpc.SeverityWarning, "route table routes-near", "8 of 10 routes are used"}}},
		{"a failed table", func(w *world) { w.SetState(theTable, "Failed") }, []int{1}, []finding{
			{vpc.SeverityWarning, "route table routes-near", "its last write failed"},
		}},
		{"no permission to write", func(w *world) {
			w.Deny("Microsoft.Network/routeTables/write", "Microsoft.Network/networkInterfaces/write")
		}, []int{1}, []finding{
			{vpc.SeverityError, "permission Microsoft.Network/routeTables/write", "AuthorizationFailed"},
			{vpc.SeverityError, "permission Microsoft.Network/networkInterfaces/write", "AuthorizationFailed"},
		}},
		{"no permission to read", func(w *world) {
			w.Deny("Microsoft.Network/virtualNetworks/read", "Microsoft.Network/networkInterfaces/read", "Microsoft.Network/networkInterfaces/write")
		}, []int{1}, []finding{
			{vpc.SeverityError, "permission Microsoft.Network/virtualNetworks/read", "AuthorizationFailed"},
			{vpc.SeverityError, "permission Microsoft.Network/networkInterfaces/read", "AuthorizationFailed"},
		}},
		{"nothing may be read", func(w *world) { w.Only() }, []int{1}, []finding{
			{vpc.SeverityError, "permission Microsoft.Network/routeTables/read", "AuthorizationFailed"},
		}},
		{"the table is gone", func(w *world) { w.RemoveTable(theGroup, theTable) }, []int{1}, []finding{
			{vpc.SeverityError, "Microsoft.Network/routeTables/read", "ResourceNotFound"},
		}},
		{"a worthless token", func(w *world) { w.Revoke() }, []int{1}, []finding{
			{vpc.SeverityError, "permission Microsoft.Network/routeTables/read", "InvalidAuthenticationToken"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.config.MaxRoutes, w.config.SetForwarding = 10, true
			w.startMachines(1, 2)
			table := w.table(t)
			for _, i := range tt.nodes {
				if _, err := table.NextHop(t.Context(), w.node(i), vpc.IPv4); err != nil {
					t.Fatal(err)
				}
			}
			tt.setUp(w)
			before := w.routes(presentTable(tt.name))
			checkFindings(t, table.Preflight(t.Context()), tt.want)
			if after := w.routes(presentTable(tt.name)); len(after) != len(before) {
				t.Errorf("the check changed %v into %v", before, after)
			}
		})
	}
}

// presentTable is a table that is there.
func presentTable(name string) string {
	if name == "the table is gone" {
		return farTable
	}
	return theTable
}
