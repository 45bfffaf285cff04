package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// noEtag is never a resource's. A write of what was just read that is guarded by
// it is refused whatever happens, and tells whether it would have been allowed:
// the resource manager looks at permissions before it asks the network provider.
const noEtag = `W/"00000000-0000-0000-0000-000000000000"`

// nearlyFull is the share of a table's maximum, in per cent, worth a warning.
const nearlyFull = 80

// A report collects findings.
type report struct{ findings []vpc.Finding }

func (r *report) add(s vpc.Severity, object, fix, format string, args ...any) {
	r.findings = append(r.findings, vpc.Finding{Severity: s, Object: object, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// failed reports a call that did not work; it returns true when there was one.
func (r *report) failed(permission string, err error) bool {
	switch {
	case err == nil:
		return false
	case vpc.ClassOf(err) == vpc.Denied && codeOf(err) == "":
		r.add(vpc.SeverityError, "credentials", "give the controller a working identity", "%v", err)
	case vpc.ClassOf(err) == vpc.Denied:
		r.add(vpc.SeverityError, "permission "+permission, "allow "+permission+" in the role of the controller's identity", "%v", err)
	default:
		r.add(vpc.SeverityError, permission, "see the message; the check can be repeated", "%v", err)
	}
	return true
}

// allowed reports a write that was refused for want of a permission; that it was
// refused for its etag is as good as yes.
func (r *report) allowed(permission string, err error) {
	if vpc.ClassOf(err) == vpc.Denied {
		r.failed(permission, err)
	}
}

// Preflight checks the tables, the permissions, what overlaps the cluster CIDRs,
// which subnets use another table or none, and which interfaces do not forward:
// those of the nodes seen so far, or of the whole network when none was seen.
func (t *routeTables) Preflight(ctx context.Context) []vpc.Finding {
	r := &report{}
	tables, err := t.read(ctx)
	if r.failed("Microsoft.Network/routeTables/read", err) {
		return r.findings
	}
	for _, d := range tables {
		t.checkTable(r, d)
	}
	r.allowed("Microsoft.Network/routeTables/write", t.tryWrite(ctx, tables[0]))
	t.checkInterfaces(ctx, r, tables)
	for _, id := range t.networkIDs(tables) {
		network, err := t.network(ctx, id, 0)
		if !r.failed("Microsoft.Network/virtualNetworks/read", err) {
			t.checkNetwork(r, network, tables)
		}
	}
	return r.findings
}

func (t *routeTables) tryWrite(ctx context.Context, d *document) error {
	guarded := *d
	guarded.etag = noEtag
	return t.api.putTable(ctx, &guarded)
}

// checkTable reports what is the matter with one table: its room, its state, its
// subnets, and the entries of others that overlap the cluster CIDRs (a default
// route is none of them).
func (t *routeTables) checkTable(r *report, d *document) {
	object := d.ref.String()
	if used := len(d.entries); used*100 >= t.config.MaxRoutes*nearlyFull {
		r.add(vpc.SeverityWarning, object, "remove routes, or ask for a larger limit and set it", "%d of %d routes are used", used, t.config.MaxRoutes)
	}
	if d.state == armnetwork.ProvisioningStateFailed {
		r.add(vpc.SeverityWarning, object, "write it once more (az network route-table update); the controller's next write does so too", "its last write failed")
	}
	if len(d.subnets) == 0 {
		r.add(vpc.SeverityWarning, object, "attach it to the subnets of the nodes", "no subnet uses it, so its routes have no effect")
	}
	for _, e := range d.entries {
		p := e.route.Destination
		if !p.IsValid() || p.Bits() == 0 || t.isOurs(e) {
			continue
		}
		t.eachOverlap(p, func(cluster netip.Prefix) {
			r.add(vpc.SeverityWarning, object, "remove that route, or give the cluster another range", "cluster CIDR %s overlaps route %q (%s to %s %s), which is not this cluster's", cluster, e.name, p, e.kind, e.route.NextHop)
		})
	}
}

func (t *routeTables) eachOverlap(p netip.Prefix, found func(cluster netip.Prefix)) {
	for _, c := range t.config.ClusterCIDRs {
		if c.Overlaps(p) {
			found(c)
		}
	}
}

// seen copies what is known of nodes.
func (t *routeTables) seen() map[string]usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.used)
}

// networkIDs are the networks of the tables' subnets and of the nodes.
func (t *routeTables) networkIDs(tables []*document) (ids []string) {
	add := func(subnet string) {
		id := strings.ToLower(networkOf(subnet))
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, d := range tables {
		for _, s := range d.subnets {
			add(s)
		}
	}
	for _, u := range t.seen() {
		add(u.subnet)
	}
	slices.Sort(ids)
	return ids
}

// checkInterfaces reports interfaces that do not forward, and permissions.
func (t *routeTables) checkInterfaces(ctx context.Context, r *report, tables []*document) {
	used := t.seen()
	keys := map[string]bool{}
	for _, u := range used {
		keys[u.key] = true
	}
	if len(used) == 0 {
		keys[machine{group: t.config.ResourceGroup}.key()] = true
	}
	var tried bool
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		nics, err := t.interfaces(ctx, key, 0)
		permission := "Microsoft.Network/networkInterfaces/read"
		if !strings.HasSuffix(key, "/") {
			permission = "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read"
		}
		if r.failed(permission, err) {
			continue
		}
		for _, n := range nics {
			u, hasNode := used[strings.ToLower(n.id)]
			if t.config.SetForwarding && !n.uniform && !tried {
				tried = true
				r.allowed("Microsoft.Network/networkInterfaces/write", t.tryInterface(ctx, n))
			}
			switch {
			case n.forwards:
			case hasNode:
				r.add(vpc.SeverityError, "network interface "+n.name, forwardingFix(n, key), "node %s uses it, and IP forwarding is off: packets do not arrive", u.node)
			case len(used) == 0 && attached(n, tables):
				r.add(vpc.SeverityWarning, "network interface "+n.name, forwardingFix(n, key), "IP forwarding is off: a node that uses it gets no packets for its pods")
			}
		}
	}
}

func forwardingFix(n nic, key string) string {
	if n.uniform {
		_, scaleSet, _ := strings.Cut(key, "/")
		return fixScaleSet(scaleSet)
	}
	return fixForwarding
}

// attached is true when an interface is in a subnet of a managed table.
func attached(n nic, tables []*document) bool {
	return slices.ContainsFunc(n.addresses, func(a nicAddress) bool {
		return slices.ContainsFunc(tables, func(d *document) bool { return d.uses(a.subnet) })
	})
}

func (t *routeTables) tryInterface(ctx context.Context, n nic) error {
	_, body, err := t.api.rawInterface(ctx, n.group, n.name)
	if err != nil {
		return err
	}
	if !json.Valid(body) {
		return vpc.Errorf(vpc.Transient, "network interface %s: the answer is not understood", n.name)
	}
	return t.api.putInterface(ctx, n.group, n.name, noEtag, body)
}

// checkNetwork reports ranges of a network, its peers and its subnets that
// overlap the cluster CIDRs, and subnets that use no managed table.
func (t *routeTables) checkNetwork(r *report, n *armnetwork.VirtualNetwork, tables []*document) {
	name := value(n.Name)
	overlaps := func(space *armnetwork.AddressSpace, found func(cluster, p netip.Prefix)) {
		if space == nil {
			return
		}
		for _, text := range space.AddressPrefixes {
			if p, err := netip.ParsePrefix(value(text)); err == nil {
				t.eachOverlap(p, func(cluster netip.Prefix) { found(cluster, p) })
			}
		}
	}
	overlaps(n.Properties.AddressSpace, func(cluster, p netip.Prefix) {
		r.add(vpc.SeverityError, "virtual network "+name, "give the cluster a range outside the network's", "cluster CIDR %s overlaps the network's own range %s", cluster, p)
		r.findings[len(r.findings)-1].Fatal = true
	})
	for _, peer := range n.Properties.VirtualNetworkPeerings {
		if peer.Properties == nil {
			continue
		}
		overlaps(peer.Properties.RemoteAddressSpace, func(cluster, p netip.Prefix) {
			r.add(vpc.SeverityWarning, "peering "+name+"/"+value(peer.Name), "give the cluster a range outside the peer's", "cluster CIDR %s overlaps the peer's range %s", cluster, p)
		})
	}
	for _, s := range n.Properties.Subnets {
		t.checkSubnet(r, s, tables)
	}
}

func (t *routeTables) checkSubnet(r *report, s *armnetwork.Subnet, tables []*document) {
	id := value(s.ID)
	if slices.ContainsFunc(tables, func(d *document) bool { return d.uses(id) }) {
		return
	}
	used := t.seen()
	nodes := 0
	for _, u := range used {
		if strings.EqualFold(u.subnet, id) {
			nodes++
		}
	}
	fix := "attach the subnet to a managed table, or manage the one it uses"
	switch {
	case nodes > 0:
		r.add(vpc.SeverityError, "subnet "+shortSubnet(id), fix, "nodes are in it, and it uses %s", usedBy(s))
	case len(used) == 0:
		r.add(vpc.SeverityWarning, "subnet "+shortSubnet(id), fix, "it uses %s: machines in it do not reach pods", usedBy(s))
	}
}
