package gcp

import (
	"context"
	"fmt"
	"net/netip"

	compute "google.golang.org/api/compute/v1"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// noRange is never a destination and noName never a route's or operation's
	// name of ours. A write that asks for them is refused whatever there is, and
	// tells whether it would have been allowed: that is how permissions are
	// checked without writing. An API that looked at the request before the
	// permission would only hide that one is missing.
	noRange = "0.0.0.0/33"
	noName  = "vpcroute-permission-check"

	// nearlyFull is the share of the quota, in per cent, worth a warning.
	nearlyFull = 80
)

// autoRange is where a network in auto mode puts the subnets of regions, those
// to come included (docs.cloud.google.com/vpc/docs/static-routes).
var autoRange = netip.MustParsePrefix("10.128.0.0/9")

// A report collects findings.
type report struct{ findings []vpc.Finding }

func (r *report) add(s vpc.Severity, object, fix, format string, args ...any) {
	r.findings = append(r.findings, vpc.Finding{Severity: s, Object: object, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// failed reports a call that did not work; it returns true when there was one.
func (r *report) failed(call, permission string, err error) bool {
	switch {
	case err == nil:
		return false
	case vpc.ClassOf(err) == vpc.Denied:
		r.denied(permission, err)
	default:
		r.add(vpc.SeverityError, call, "see the message; the check can be repeated", "%v", err)
	}
	return true
}

func (r *report) denied(permission string, err error) {
	if a := refusal(err); a == nil || a.status == 401 {
		r.add(vpc.SeverityError, "credentials", "give the controller working credentials", "%v", err)
		return
	}
	r.add(vpc.SeverityError, "permission "+permission, "add it to the controller's IAM role", "%v", err)
}

// allowed reports a call that was refused for want of a permission; any other
// answer is as good as yes.
func (r *report) allowed(permission string, err error) {
	if vpc.ClassOf(err) == vpc.Denied {
		r.denied(permission, err)
	}
}

// Preflight checks the network, the permissions, what overlaps the cluster
// CIDRs, which machines drop pods' packets, and the quota.
func (n *network) Preflight(ctx context.Context) []vpc.Finding {
	r := &report{}
	object := "network " + n.config.Network
	found, err := n.api.network(ctx, n.config.Network)
	if vpc.ClassOf(err) == vpc.NotFound {
		r.add(vpc.SeverityError, object, "correct the network's name or project", "it does not exist in project %s", n.config.Project)
	} else if !r.failed("networks.get", "compute.networks.get", err) && found.AutoCreateSubnetworks {
		n.checkAutoMode(r, object)
	}
	routes, err := n.read(ctx)
	if !r.failed("routes.list", "compute.routes.list", err) {
		for _, x := range routes {
			n.checkRoute(r, x)
		}
	}
	used, most, err := n.api.quota(ctx)
	if !r.failed("projects.get", "compute.projects.get", err) && most > 0 && used*100 >= most*nearlyFull {
		r.add(vpc.SeverityWarning, "project "+n.config.Project, "have the quota ROUTES raised", "%d of %d routes are used", used, most)
	}
	n.probe(ctx, r)
	return r.findings
}

// probe asks for what cannot be done, to learn what is permitted.
func (n *network) probe(ctx context.Context, r *report) {
	path := n.api.networkPath(n.config.Network)
	_, err := n.api.route(ctx, noName)
	r.allowed("compute.routes.get", err)
	_, err = n.api.insert(ctx, &compute.Route{
		Name: noName, Network: path, DestRange: noRange, Priority: usualPriority,
		NextHopInstance: fmt.Sprintf("projects/%s/zones/none/instances/%s", n.config.Project, noName),
	})
	r.allowed("compute.routes.create, compute.networks.updatePolicy or compute.instances.use", err)
	_, err = n.api.remove(ctx, noName)
	r.allowed("compute.routes.delete or compute.networks.updatePolicy", err)
	_, err = n.api.finish(ctx, "the permission check", &compute.Operation{Name: noName})
	r.allowed("compute.globalOperations.get", err)
}

func (n *network) checkAutoMode(r *report, object string) {
	for _, p := range n.config.ClusterCIDRs {
		if p.Overlaps(autoRange) {
			r.add(vpc.SeverityWarning, object, "give the cluster a range outside "+autoRange.String()+", or switch the network to custom mode",
				"it is in auto mode, and cluster CIDR %s overlaps %s, where it puts the subnets of new regions", p, autoRange)
		}
	}
}

// checkRoute reports a route that overlaps the cluster's ranges and is not ours,
// and one of ours whose machine drops packets.
func (n *network) checkRoute(r *report, x *compute.Route) {
	found := routeOf(n.config.Network, x)
	if found.Owner == n.config.Owner {
		if why := barred(x.Warnings); why != "" {
			r.add(vpc.SeverityError, string(found.NextHop), "make the machine anew with forwarding allowed", "%s", why)
		}
		return
	}
	for _, p := range n.config.ClusterCIDRs {
		if d := found.Destination; d.IsValid() && d.Bits() > 0 && d.Overlaps(p) {
			n.reportOverlap(r, x, p)
		}
	}
}

func (n *network) reportOverlap(r *report, x *compute.Route, p netip.Prefix) {
	switch object := "route " + x.Name; {
	case x.NextHopNetwork != "":
		r.add(vpc.SeverityError, object, "give the cluster a range that no subnet of the network has",
			"cluster CIDR %s overlaps the subnet range %s: the cloud refuses routes inside it, and takes packets to it for the subnet's", p, x.DestRange)
		r.findings[len(r.findings)-1].Fatal = true
	case x.NextHopPeering != "":
		r.add(vpc.SeverityWarning, object, "give the cluster a range that no peered network has",
			"cluster CIDR %s overlaps %s of peering %s", p, x.DestRange, x.NextHopPeering)
	default:
		r.add(vpc.SeverityWarning, object, "remove that route, or give the cluster another range",
			"cluster CIDR %s overlaps the route %s to %s", p, x.DestRange, hopText(x))
	}
}
