package aws

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// nearlyFull is the share of a table's maximum, in per cent, worth a warning.
const nearlyFull = 80

// noInterface stands for an interface in dry runs when there is none.
const noInterface = vpc.NextHop("eni-00000000000000000")

// A report collects findings.
type report struct{ findings []vpc.Finding }

func (r *report) add(s vpc.Severity, object, fix, format string, args ...any) {
	r.findings = append(r.findings, vpc.Finding{Severity: s, Object: object, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// failed reports a call that did not work; it returns true when there was one.
func (r *report) failed(action string, err error) bool {
	switch {
	case err == nil:
		return false
	case vpc.ClassOf(err) != vpc.Denied:
		r.add(vpc.SeverityError, "ec2:"+action, "see the message; the check can be repeated", "%v", err)
	case codeOf(err) != "UnauthorizedOperation":
		r.add(vpc.SeverityError, "credentials", "give the controller working credentials", "%v", err)
	default:
		r.denied(action, "", err)
	}
	return true
}

func (r *report) denied(action, where string, err error) {
	r.add(vpc.SeverityError, "permission ec2:"+action+where, "allow ec2:"+action+" in the IAM policy of the controller's role", "%v", err)
}

// allowed reports a dry run that was refused for want of a permission; any other
// answer is as good as yes.
func (r *report) allowed(action, where string, err error) {
	if err != nil && vpc.ClassOf(err) == vpc.Denied {
		r.denied(action, where, err)
	}
}

// Preflight checks the permissions on every managed table, what overlaps the
// cluster CIDRs, which subnets of the nodes seen so far use a table that is not
// managed (which subnets with instances do, when no node was seen), the nodes'
// source and destination checks where they are not ours to switch off, and how
// full the tables are.
func (t *routeTables) Preflight(ctx context.Context) []vpc.Finding {
	r := &report{}
	tables, err := t.readTables(ctx)
	if r.failed("DescribeRouteTables", err) {
		return r.findings
	}
	f, err := t.interfaces(ctx, 0)
	known := !r.failed("DescribeNetworkInterfaces", err)
	managed, err := t.managed(ctx, tables)
	if r.failed("DescribeSubnets", err) {
		return r.findings
	}
	t.checkPermissions(ctx, r, managed, f)
	t.checkNetwork(ctx, r)
	if known {
		t.checkSubnets(r, tables, managed, f)
		t.checkForwarding(r, f)
	}
	for _, x := range managed {
		t.checkRoutes(r, x)
		t.checkRoom(r, x)
	}
	return r.findings
}

// checkPermissions asks for dry runs of all writes.
func (t *routeTables) checkPermissions(ctx context.Context, r *report, managed []types.RouteTable, f fleet) {
	id := noInterface
	for _, each := range slices.Sorted(maps.Keys(f.byID)) {
		if id = each; t.nodeAt(id) != "" {
			break
		}
	}
	for _, x := range managed {
		where := " on " + value(x.RouteTableId)
		dry := vpc.Route{Table: value(x.RouteTableId), Destination: t.config.ClusterCIDRs[0], NextHop: id}
		r.allowed(createRoute, where, t.api.createRoute(ctx, dry, true))
		r.allowed(replaceRoute, where, t.api.replaceRoute(ctx, dry, true))
		r.allowed(deleteRoute, where, t.api.deleteRoute(ctx, dry, true))
	}
	if t.config.Check == SwitchOff {
		r.allowed(modifyInterface, "", t.api.uncheck(ctx, id, true))
	}
}

// nodeAt is the name of the node that was seen at an interface, or "".
func (t *routeTables) nodeAt(id vpc.NextHop) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[id]
}

// checkNetwork compares the cluster CIDRs with the VPC's ranges.
func (t *routeTables) checkNetwork(ctx context.Context, r *report) {
	net, err := t.api.network(ctx, t.config.VpcID)
	if r.failed("DescribeVpcs", err) {
		return
	}
	texts := []string{value(net.CidrBlock)}
	for _, a := range net.CidrBlockAssociationSet {
		texts = append(texts, value(a.CidrBlock))
	}
	for _, a := range net.Ipv6CidrBlockAssociationSet {
		texts = append(texts, value(a.Ipv6CidrBlock))
	}
	slices.Sort(texts)
	for _, s := range slices.Compact(texts) {
		if p, err := netip.ParsePrefix(s); err == nil {
			t.eachOverlap(p, func(cluster netip.Prefix) {
				r.add(vpc.SeverityError, "VPC "+t.config.VpcID, "give the cluster a range outside the VPC's", "cluster CIDR %s overlaps the VPC's own range %s", cluster, p)
				r.findings[len(r.findings)-1].Fatal = true
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

func (t *routeTables) checkSubnets(r *report, tables, managed []types.RouteTable, f fleet) {
	nodes := map[string]string{} // one of each subnet, "" where none was seen
	seen := false
	for id, p := range f.byID {
		name := t.nodeAt(id)
		seen = seen || name != ""
		if first := nodes[p.subnet]; first == "" || name != "" && name < first {
			nodes[p.subnet] = name
		}
	}
	for _, subnet := range slices.Sorted(maps.Keys(nodes)) {
		used := tableOf(tables, subnet)
		if slices.ContainsFunc(managed, func(x types.RouteTable) bool { return value(x.RouteTableId) == used }) {
			continue
		}
		fix := fmt.Sprintf("attach the subnet to a managed table, or manage %s too", used)
		switch {
		case nodes[subnet] != "":
			r.add(vpc.SeverityError, "subnet "+subnet, fix, "node %s is in it, and it uses route table %s, which is not managed", nodes[subnet], used)
		case !seen:
			r.add(vpc.SeverityWarning, "subnet "+subnet, fix, "it uses route table %s, which is not managed: instances in it do not reach pods", used)
		}
	}
}

// checkForwarding reports the nodes' interfaces that drop packets for pods.
func (t *routeTables) checkForwarding(r *report, f fleet) {
	if t.config.Check == SwitchOff {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(f.byID)) {
		if name := t.nodeAt(id); name != "" && f.byID[id].check {
			r.add(vpc.SeverityError, "interface "+string(id), "switch its source/destination check off, or let the controller do it", "%s: no packet reaches the pods of node %s", dropped(id), name)
		}
	}
}

// checkRoutes reports the entries in the cluster CIDRs that lead to something
// else than an interface, and so are not this cluster's; a default route is none
// of them.
func (t *routeTables) checkRoutes(r *report, x types.RouteTable) {
	for _, e := range x.Routes {
		found := routeOf(value(x.RouteTableId), e)
		if !found.Destination.IsValid() || found.Destination.Bits() == 0 || value(e.GatewayId) == "local" || byHand(e) && (e.NetworkInterfaceId != nil || found.NextHop == "") {
			continue
		}
		t.eachOverlap(found.Destination, func(cluster netip.Prefix) {
			r.add(vpc.SeverityWarning, "route table "+found.Table, "remove that route, or give the cluster another range", "cluster CIDR %s overlaps %s to %s, which is not this cluster's", cluster, found.Destination, found.NextHop)
		})
	}
}

func (t *routeTables) checkRoom(r *report, x types.RouteTable) {
	for _, family := range []vpc.Family{vpc.IPv4, vpc.IPv6} {
		if used, most := usedBy(x, family), t.config.RoutesPerTable; used*100 >= most*nearlyFull {
			r.add(vpc.SeverityWarning, "route table "+value(x.RouteTableId), "ask for a larger quota of routes per table", "%d of %d %s routes are used", used, most, family)
		}
	}
}
