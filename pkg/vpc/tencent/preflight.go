package tencent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	vpcapi "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc/v20170312"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// noRange is never a destination. A write that asks for it is refused whatever
// the table holds, and tells whether it would have been allowed: that is how
// permissions are checked without writing. An API that looked at the range
// before the permission would only hide that one is missing.
const noRange = "0.0.0.0/33"

// nearlyFull is the share of a table's maximum, in per cent, worth a warning.
const nearlyFull = 80

// A report collects findings.
type report struct{ findings []vpc.Finding }

func (r *report) add(s vpc.Severity, object, fix, format string, args ...any) {
	r.findings = append(r.findings, vpc.Finding{Severity: s, Object: object, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// harmful reports what no route may be made beside.
func (r *report) harmful(object, fix, format string, args ...any) {
	r.add(vpc.SeverityError, object, fix, format, args...)
	r.findings[len(r.findings)-1].Fatal = true
}

// failed reports a call that did not work; it returns true when there was one.
func (r *report) failed(service, action string, err error) bool {
	switch {
	case err == nil:
		return false
	case vpc.ClassOf(err) == vpc.Denied && codeOf(err) == "":
		r.add(vpc.SeverityError, "credentials", "give the controller working keys", "%v", err)
	case vpc.ClassOf(err) == vpc.Denied:
		r.denied(service, action, err)
	default:
		r.add(vpc.SeverityError, service+":"+action, "see the message; the check can be repeated", "%v", err)
	}
	return true
}

func (r *report) denied(service, action string, err error) {
	name := service + ":" + action
	r.add(vpc.SeverityError, "permission "+name, "allow "+name+" in the CAM policy of the controller's key or role", "%v", err)
}

// allowed reports a write that was refused for want of a permission; any other
// answer is as good as yes.
func (r *report) allowed(service, action string, err error) {
	if vpc.ClassOf(err) == vpc.Denied {
		r.denied(service, action, err)
	}
}

// Preflight checks the table, the permissions and what overlaps its range.
func (t *globalRoute) Preflight(ctx context.Context) []vpc.Finding {
	r := &report{}
	object := "cluster route table " + t.want.RouteTableName
	switch err := t.verify(ctx); vpc.ClassOf(err) {
	case vpc.NotFound, vpc.Invalid:
		r.add(vpc.SeverityError, object, "correct the table's name, the VPC id or the cluster CIDR", "%v", err)
	default:
		r.failed(tkeService, "DescribeClusterRouteTables", err)
	}
	_, err := t.List(ctx)
	r.failed(tkeService, "DescribeClusterRoutes", err)
	impossible := clusterRoute{DestinationCidrBlock: noRange, GatewayIP: "0.0.0.0"}
	r.allowed(tkeService, "CreateClusterRoute", t.api.createClusterRoute(ctx, t.want.RouteTableName, impossible))
	r.allowed(tkeService, "DeleteClusterRoute", t.api.deleteClusterRoute(ctx, t.want.RouteTableName, impossible))
	conflicts, err := t.api.conflicts(ctx, t.want.RouteTableCidrBlock, t.want.VpcID)
	if !r.failed(tkeService, "DescribeRouteTableConflicts", err) {
		for _, c := range conflicts {
			t.reportConflict(r, c)
		}
	}
	return r.findings
}

func (t *globalRoute) reportConflict(r *report, c conflict) {
	object := c.RouteTableName
	switch p, err := netip.ParsePrefix(c.RouteTableCidrBlock); {
	case err == nil && p.Bits() == 0: // the default route gives way to any other
	case c.RouteTableType == "CcsClusterRouteTable" && c.RouteTableName == t.want.RouteTableName: // this table
	case c.RouteTableType == "Vpc":
		r.harmful("VPC "+object, "give the cluster a range outside the VPC's", "cluster CIDR %s overlaps the VPC's own range %s: machines in it become unreachable", t.want.RouteTableCidrBlock, c.RouteTableCidrBlock)
	case c.RouteTableType == "VpcRouteTable":
		r.add(vpc.SeverityWarning, "route table "+object, "remove that route, or give the cluster another range", "cluster CIDR %s overlaps the route %s: cluster routes win over it", t.want.RouteTableCidrBlock, c.RouteTableCidrBlock)
	default:
		r.add(vpc.SeverityWarning, "cluster "+object, "give one of the clusters another range", "cluster CIDR %s overlaps %s of another cluster", t.want.RouteTableCidrBlock, c.RouteTableCidrBlock)
	}
}

// Preflight checks the tables, the permissions, what overlaps the cluster CIDRs
// and which subnets of the nodes seen so far use a table that is not managed
// (which subnets of the VPC do, when no node was seen).
func (t *routeTables) Preflight(ctx context.Context) []vpc.Finding {
	r := &report{}
	tables, err := t.read(ctx)
	if r.failed(vpcService, "DescribeRouteTables", err) {
		return r.findings
	}
	managed := t.managed(tables)
	t.checkPermissions(ctx, r, tables, managed)
	t.checkNetwork(ctx, r)
	subnets, err := t.subnets(ctx, 0)
	if !r.failed(vpcService, "DescribeSubnets", err) {
		t.checkSubnets(r, subnets, managed)
	}
	for _, x := range managed {
		t.checkRoutes(r, x)
	}
	most, err := t.api.maxRoutes(ctx)
	if !r.failed(vpcService, "DescribeVpcLimits", err) {
		checkRoom(r, managed, most)
	}
	return r.findings
}

// checkPermissions asks for impossible writes to the first table at hand.
func (t *routeTables) checkPermissions(ctx context.Context, r *report, tables, managed []*vpcapi.RouteTable) {
	all := slices.Concat(managed, tables)
	if len(all) == 0 {
		r.add(vpc.SeverityError, "VPC "+t.config.VpcID, "correct the VPC id or the region", "it has no route table that these credentials can see")
		return
	}
	id := value(all[0].RouteTableId)
	const noItem = "rti-00000000"
	impossible := func() []*vpcapi.Route {
		return []*vpcapi.Route{{
			DestinationCidrBlock: ptr(noRange), GatewayType: ptr(toMachine), GatewayId: ptr("0.0.0.0"), RouteItemId: ptr(noItem), RouteId: ptr[uint64](1),
		}}
	}
	_, err := t.api.createRoutes(ctx, id, impossible())
	r.allowed(vpcService, "CreateRoutes", err)
	_, err = t.api.replaceRoutes(ctx, id, impossible())
	r.allowed(vpcService, "ReplaceRoutes", err)
	r.allowed(vpcService, "DeleteRoutes", t.api.deleteRoutes(ctx, id, []*vpcapi.Route{{RouteItemId: ptr(noItem), RouteId: ptr[uint64](1)}}))
	r.allowed(vpcService, "EnableRoutes", t.api.enableRoutes(ctx, id, []*string{ptr(noItem)}))
}

// checkNetwork compares the cluster CIDRs with the VPC's ranges.
func (t *routeTables) checkNetwork(ctx context.Context, r *report) {
	net, err := t.api.network(ctx, t.config.VpcID)
	if r.failed(vpcService, "DescribeVpcs", err) {
		return
	}
	ranges := []string{value(net.CidrBlock)}
	for _, a := range net.AssistantCidrSet {
		ranges = append(ranges, value(a.CidrBlock))
	}
	for _, s := range ranges {
		if p, err := netip.ParsePrefix(s); err == nil {
			t.eachOverlap(p, func(cluster netip.Prefix) {
				r.harmful("VPC "+t.config.VpcID, "give the cluster a range outside the VPC's", "cluster CIDR %s overlaps the VPC's own range %s", cluster, p)
			})
		}
	}
}

func (t *routeTables) eachOverlap(p netip.Prefix, found func(cluster netip.Prefix)) {
	for _, c := range t.config.ClusterCIDRs {
		if c.Overlaps(p) {
			found(c)
		}
	}
}

func (t *routeTables) checkSubnets(r *report, subnets []subnet, managed []*vpcapi.RouteTable) {
	t.mu.Lock()
	inUse := len(t.inUse) > 0
	t.mu.Unlock()
	for _, s := range subnets {
		object := "subnet " + s.id
		t.eachOverlap(s.cidr, func(cluster netip.Prefix) {
			r.harmful(object, "give the cluster a range outside the VPC's", "cluster CIDR %s overlaps the subnet's %s", cluster, s.cidr)
		})
		t.mu.Lock()
		hasNodes := t.inUse[s.id]
		t.mu.Unlock()
		if slices.ContainsFunc(managed, func(x *vpcapi.RouteTable) bool { return value(x.RouteTableId) == s.table }) {
			continue
		}
		fix := fmt.Sprintf("attach the subnet to a managed table, or manage %s too", s.table)
		switch {
		case hasNodes:
			r.add(vpc.SeverityError, object, fix, "nodes are in it, and it uses route table %s, which is not managed", s.table)
		case !inUse && len(managed) > 0:
			r.add(vpc.SeverityWarning, object, fix, "it uses route table %s, which is not managed: machines in it do not reach pods", s.table)
		}
	}
}

// checkRoutes reports the entries of others that overlap the cluster CIDRs; a
// default route is none of them.
func (t *routeTables) checkRoutes(r *report, x *vpcapi.RouteTable) {
	id := value(x.RouteTableId)
	for _, e := range x.RouteSet {
		found := routeOf(id, e)
		if !found.Destination.IsValid() || found.Destination.Bits() == 0 || found.Owner == t.config.Owner {
			continue
		}
		t.eachOverlap(found.Destination, func(cluster netip.Prefix) {
			r.add(vpc.SeverityWarning, "route table "+id, "remove that route, or give the cluster another range", "cluster CIDR %s overlaps %s to %s %s, which is not this cluster's",
				cluster, found.Destination, value(e.GatewayType), value(e.GatewayId))
		})
	}
}

func checkRoom(r *report, managed []*vpcapi.RouteTable, most int) {
	for _, x := range managed {
		if used := countUsed(x.RouteSet); most > 0 && used*100 >= most*nearlyFull {
			r.add(vpc.SeverityWarning, "route table "+value(x.RouteTableId), "ask for a larger quota of routes per table", "%d of %d routes are used", used, most)
		}
	}
}
