package aws_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
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

// R068, R070, R082 and R083: permissions, subnets, ranges, room.
func TestPreflight(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(w *world)
		nodes []string // near, far
		want  []finding
	}{
		{"nothing known of nodes", func(*world) {}, nil, []finding{
			{vpc.SeverityWarning, "subnet subnet-far", "uses route table rtb-far, which is not managed"},
		}},
		{"all is well, default route and our own included", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "0.0.0.0/0", NatGatewayID: "nat-1"})
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.1.0/24", NetworkInterfaceID: "eni-1"})
		}, []string{"near"}, nil},
		{"nodes in a subnet of another table", func(*world) {}, []string{"near", "far"}, []finding{
			{vpc.SeverityError, "subnet subnet-far", "node far is in it, and it uses route table rtb-far"},
		}},
		{"nodes in a subnet without a table of its own", func(w *world) { w.Attach("subnet-far", "") }, []string{"far"}, []finding{
			{vpc.SeverityError, "subnet subnet-far", "node far is in it, and it uses route table rtb-main"},
		}},
		{"the VPC's own and added ranges", func(w *world) {
			w.AddVPC(theVPC, "rtb-again", prefix("10.0.0.0/8"), prefix("10.244.128.0/20"), prefix("fd00:10::/32"))
		}, []string{"near"}, []finding{
			{vpc.SeverityError, "VPC vpc-1", "cluster CIDR 10.244.0.0/16 overlaps the VPC's own range 10.0.0.0/8"},
			{vpc.SeverityError, "VPC vpc-1", "range 10.244.128.0/20"},
			{vpc.SeverityError, "VPC vpc-1", "cluster CIDR fd00:10:244::/48 overlaps the VPC's own range fd00:10::/32"},
		}},
		{"a peer, and a propagated range", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.7.0/24", VpcPeeringConnectionID: "pcx-1"})
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.240.0.0/12", GatewayID: "vgw-1", Origin: "EnableVgwRoutePropagation"})
		}, []string{"near"}, []finding{
			{vpc.SeverityWarning, "route table rtb-near", "overlaps 10.244.7.0/24 to pcx-1"},
			{vpc.SeverityWarning, "route table rtb-near", "overlaps 10.240.0.0/12 to vgw-1"},
		}},
		{"nearly full, of one family", func(w *world) {
			for i := range 400 {
				w.AddRoute(theTable, emulated.Route{DestinationIpv6CidrBlock: netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd00:b:0:%x::", i)), 64).String(), TransitGatewayID: "tgw-1"})
			}
		}, []string{"near"}, []finding{{vpc.SeverityWarning, "route table rtb-near", "401 of 500 IPv6 routes are used"}}},
		{"no permission to write", func(w *world) {
			w.Deny("CreateRoute", "ReplaceRoute", "DeleteRoute", "ModifyNetworkInterfaceAttribute")
		}, []string{"near"}, []finding{
			{vpc.SeverityError, "permission ec2:CreateRoute on rtb-near", "not authorized"},
			{vpc.SeverityError, "permission ec2:ReplaceRoute on rtb-near", "not authorized"},
			{vpc.SeverityError, "permission ec2:DeleteRoute on rtb-near", "not authorized"},
			{vpc.SeverityError, "permission ec2:ModifyNetworkInterfaceAttribute", "not authorized"},
		}},
		{"no permission for one of two tables", func(w *world) { w.Deny("CreateRoute:rtb-far") }, []string{"near", "far", "both tables"}, []finding{
			{vpc.SeverityError, "permission ec2:CreateRoute on rtb-far", "not authorized"},
		}},
		{"no permission to read", func(w *world) { w.Deny("DescribeNetworkInterfaces", "DescribeVpcs") }, []string{"near"}, []finding{
			{vpc.SeverityError, "permission ec2:DescribeNetworkInterfaces", "not authorized"},
			{vpc.SeverityError, "permission ec2:DescribeVpcs", "not authorized"},
		}},
		{"no permission at all", func(w *world) { w.Only() }, nil, []finding{
			{vpc.SeverityError, "permission ec2:DescribeRouteTables", "not authorized"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.startMachines(1)
			far := w.startFar()
			for _, name := range tt.nodes {
				if name == "both tables" {
					w.config.Tables = []string{theTable, farTable}
				}
			}
			table := w.table(t)
			for _, name := range tt.nodes {
				n := map[string]vpc.Node{"near": node(1), "far": far}[name]
				_, _ = table.NextHop(t.Context(), n, vpc.IPv4)
			}
			tt.setUp(w)
			before := len(w.Routes(theTable))
			checkFindings(t, table.Preflight(t.Context()), tt.want)
			if n := len(w.Routes(theTable)); n != before || w.Writes() != 0 {
				t.Errorf("the check wrote %d times and changed %d routes into %d", w.Writes(), before, n)
			}
		})
	}
}

// Credentials that do not work are told as such, not as a missing permission.
func TestPreflightOfCredentials(t *testing.T) {
	w := newWorld()
	table := w.table(t)
	w.Inject(cloud.Fault{Answer: &cloud.Answer{Code: "AuthFailure", Message: "planted"}})
	checkFindings(t, table.Preflight(t.Context()), []finding{{vpc.SeverityError, "credentials", "AuthFailure"}})
}
