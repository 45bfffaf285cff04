package gcp

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	compute "google.golang.org/api/compute/v1"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A network is the routes of one VPC network.
type network struct {
	config Config
	api    *client

	mu     sync.Mutex
	barred map[vpc.NextHop]string // machines that drop pods' packets, and why
}

// NextHop returns the node's instance or address. It asks nobody: what the cloud
// says of machines comes with the routes that lead to them.
func (n *network) NextHop(ctx context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	hop, err := hopOf(n.config, node, family)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if why := n.barred[hop]; why != "" {
		return "", vpc.Errorf(vpc.Invalid, "node %s: %s: %s", node.Name, hop, why)
	}
	return hop, nil
}

// List returns the network's routes: static ones, ours or not, those of subnets
// and those of peerings. Routes learnt from a router (BGP) are none of the API's
// route resources.
func (n *network) List(ctx context.Context) ([]vpc.Route, error) {
	found, err := n.read(ctx)
	if err != nil {
		return nil, err
	}
	routes := make([]vpc.Route, len(found))
	for i, r := range found {
		routes[i] = routeOf(n.config.Network, r)
	}
	return routes, nil
}

// read lists the routes and notes which machines drop pods' packets.
func (n *network) read(ctx context.Context) ([]*compute.Route, error) {
	found, err := n.api.routes(ctx, n.config.Network)
	if err != nil {
		return nil, err
	}
	now := map[vpc.NextHop]string{}
	for _, r := range found {
		if why := barred(r.Warnings); why != "" && hopOfRoute(r) != "" {
			now[hopOfRoute(r)] = why
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.barred = now
	return found, nil
}

// bar notes that a machine drops pods' packets.
func (n *network) bar(hop vpc.NextHop, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.barred == nil {
		n.barred = map[vpc.NextHop]string{}
	}
	n.barred[hop] = why
}

// Limits tells the project's quota of static routes, which all its networks
// share.
func (n *network) Limits(ctx context.Context) (vpc.Limits, error) {
	used, most, err := n.api.quota(ctx)
	if err != nil {
		return vpc.Limits{}, err
	}
	return vpc.Limits{
		Tables:   []vpc.TableLimits{{Table: n.config.Network, Used: used, Max: most}},
		Families: []vpc.Family{vpc.IPv4, vpc.IPv6},
	}, nil
}

// check says why a change can never be made, or returns nil.
func (n *network) check(c vpc.Change) error {
	d := c.Route.Destination
	switch {
	case c.Route.Table != n.config.Network:
		return invalidChange(c, "this is not the managed network "+n.config.Network)
	case !d.IsValid() || d != d.Masked() || d.Addr().Is4In6():
		return invalidChange(c, "the destination is not a range")
	case c.Op == vpc.Delete:
		return nil
	}
	if reason := checkHop(d, c.Route.NextHop); reason != "" {
		return invalidChange(c, reason)
	}
	return nil
}

func invalidChange(c vpc.Change, reason string) error {
	return &vpc.Error{Class: vpc.Invalid, Op: describe(c), Err: fmt.Errorf("%s", reason)}
}

// describe says in words what a change does.
func describe(c vpc.Change) string {
	if c.Op == vpc.Delete {
		return fmt.Sprintf("delete %s by %s from %s", c.Route.Destination, c.Route.NextHop, c.Route.Table)
	}
	return fmt.Sprintf("%s %s by %s in %s", c.Op, c.Route.Destination, c.Route.NextHop, c.Route.Table)
}

// byDestination finds the routes of a network.
func byDestination(routes []*compute.Route) map[netip.Prefix][]*compute.Route {
	found := map[netip.Prefix][]*compute.Route{}
	for _, r := range routes {
		if p, err := netip.ParsePrefix(r.DestRange); err == nil {
			found[p.Masked()] = append(found[p.Masked()], r)
		}
	}
	return found
}
