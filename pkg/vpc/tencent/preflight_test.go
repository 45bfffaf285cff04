package tencent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
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

// R082: the cluster's range against everything else in the VPC.
func TestPreflightOfClusterTable(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(w *world)
		want  []finding
	}{
		{"all is well, default route included", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "0.0.0.0/0", GatewayType: "NAT", GatewayId: "nat-1"})
		}, nil},
		{"the VPC's range", func(w *world) { w.AddVPC(theVPC, netip.MustParsePrefix("10.0.0.0/8")) }, []finding{
			{vpc.SeverityError, "VPC vpc-1", "cluster CIDR 10.244.0.0/16 overlaps the VPC's own range 10.0.0.0/8"},
		}},
		{"an added range of the VPC", func(w *world) {
			w.AddVPC(theVPC, netip.MustParsePrefix("172.16.0.0/16"), netip.MustParsePrefix("10.244.128.0/20"))
		}, []finding{{vpc.SeverityError, "VPC vpc-1", "10.244.128.0/20"}}},
		{"a peer's range", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.7.0/24", GatewayType: "PEERCONNECTION", GatewayId: "pcx-1"})
		}, []finding{{vpc.SeverityWarning, "route table rtb-main", "10.244.7.0/24"}}},
		{"another cluster's range", func(w *world) { w.AddCluster(theVPC, "cls-9", netip.MustParsePrefix("10.240.0.0/12")) }, []finding{
			{vpc.SeverityWarning, "cluster cls-9", "overlaps 10.240.0.0/12"},
		}},
		{"another cluster's table", func(w *world) { w.AddClusterTable("cls-8", theVPC, netip.MustParsePrefix("10.244.0.0/20")) }, []finding{
			{vpc.SeverityWarning, "cluster cls-8", "overlaps 10.244.0.0/20"},
		}},
		{"the table is gone", func(w *world) { w.config.Tables = nil; w.AddClusterTable(theCluster, "vpc-2", clusterCIDR) }, []finding{
			{vpc.SeverityError, "cluster route table cls-1", "belongs to VPC vpc-2"},
		}},
		{"no permission to write", func(w *world) { w.Deny("CreateClusterRoute", "DeleteClusterRoute") }, []finding{
			{vpc.SeverityError, "permission tke:CreateClusterRoute", "not authorized"},
			{vpc.SeverityError, "permission tke:DeleteClusterRoute", "not authorized"},
		}},
		{"no permission to read", func(w *world) {
			w.Deny("DescribeClusterRoutes", "DescribeClusterRouteTables", "DescribeRouteTableConflicts")
		}, []finding{
			{vpc.SeverityError, "permission tke:DescribeClusterRoutes", "not authorized"},
			{vpc.SeverityError, "permission tke:DescribeClusterRouteTables", "not authorized"},
			{vpc.SeverityError, "permission tke:DescribeRouteTableConflicts", "not authorized"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			table := w.table(t)
			tt.setUp(w)
			checkFindings(t, table.Preflight(t.Context()), tt.want)
			if n := len(w.routes()); n != 0 {
				t.Errorf("the check wrote %d routes", n)
			}
		})
	}
}

// R068, R070, R082 for the VPC's own tables.
func TestPreflightOfRouteTables(t *testing.T) {
	far := vpc.Node{Name: "far", Addresses: addrs("10.1.0.5")}
	tests := []struct {
		name  string
		setUp func(w *world)
		nodes []vpc.Node
		want  []finding
	}{
		{"nothing known of nodes", func(*world) {}, nil, []finding{
			{vpc.SeverityWarning, "subnet subnet-far", "uses route table rtb-far, which is not managed"},
		}},
		{"all is well", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "0.0.0.0/0", GatewayType: "NAT", GatewayId: "nat-1"})
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.1.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.11", RouteDescription: "vpcroute/cls-1"})
		}, []vpc.Node{node(1)}, nil},
		{"nodes in a subnet of another table", func(*world) {}, []vpc.Node{node(1), far}, []finding{
			{vpc.SeverityError, "subnet subnet-far", "nodes are in it, and it uses route table rtb-far"},
		}},
		{"the VPC's range and a subnet's", func(w *world) {
			w.AddVPC(theVPC, netip.MustParsePrefix("10.0.0.0/8"))
			w.AddSubnet(theVPC, "subnet-near", netip.MustParsePrefix("10.244.3.0/24"), theTable)
		}, nil, []finding{
			{vpc.SeverityError, "VPC vpc-1", "cluster CIDR 10.244.0.0/16 overlaps the VPC's own range 10.0.0.0/8"},
			{vpc.SeverityError, "subnet subnet-near", "cluster CIDR 10.244.0.0/16 overlaps the subnet's 10.244.3.0/24"},
		}},
		{"a peer, and another cluster", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.7.0/24", GatewayType: "PEERCONNECTION", GatewayId: "pcx-1"})
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.8.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.9", RouteDescription: "vpcroute/cls-10"})
		}, []vpc.Node{node(1)}, []finding{
			{vpc.SeverityWarning, "route table rtb-main", "10.244.7.0/24 to PEERCONNECTION pcx-1"},
			{vpc.SeverityWarning, "route table rtb-main", "10.244.8.0/24 to NORMAL_CVM 10.0.0.9"},
		}},
		{"nearly full", func(w *world) {
			for i := range 40 {
				w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24).String(), GatewayType: "NAT", GatewayId: "nat-1"})
			}
		}, []vpc.Node{node(1)}, []finding{{vpc.SeverityWarning, "route table rtb-main", "40 of 50 routes are used"}}},
		{"no permission to write", func(w *world) { w.Deny("CreateRoutes", "ReplaceRoutes", "DeleteRoutes", "EnableRoutes") }, []vpc.Node{node(1)}, []finding{
			{vpc.SeverityError, "permission vpc:CreateRoutes", "not authorized"},
			{vpc.SeverityError, "permission vpc:ReplaceRoutes", "not authorized"},
			{vpc.SeverityError, "permission vpc:DeleteRoutes", "not authorized"},
			{vpc.SeverityError, "permission vpc:EnableRoutes", "not authorized"},
		}},
		{"no permission to read", func(w *world) { w.Deny("DescribeSubnets", "DescribeVpcs", "DescribeVpcLimits") }, []vpc.Node{node(1)}, []finding{
			{vpc.SeverityError, "permission vpc:DescribeSubnets", "not authorized"},
			{vpc.SeverityError, "permission vpc:DescribeVpcs", "not authorized"},
			{vpc.SeverityError, "permission vpc:DescribeVpcLimits", "not authorized"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.VPC)
			table := w.table(t)
			for _, n := range tt.nodes {
				_, _ = table.NextHop(t.Context(), n, vpc.IPv4)
			}
			tt.setUp(w)
			before := len(w.routes())
			checkFindings(t, table.Preflight(t.Context()), tt.want)
			if n := len(w.routes()); n != before {
				t.Errorf("the check changed %d routes into %d", before, n)
			}
		})
	}
}
