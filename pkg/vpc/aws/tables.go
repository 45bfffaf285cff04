package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// tableLifetime is how long the tables serve questions that age does not
	// spoil, such as which subnets use them.
	tableLifetime = time.Minute
	// fleetLifetime is how long the interfaces are taken for known; every full
	// list reads them anew.
	fleetLifetime = 10 * time.Minute
	// newInterfaceAfter is how soon they are read again for a node that is not
	// among them. An instance that is a Node already has been there for longer.
	newInterfaceAfter = 5 * time.Second
	// pairLifetime is how soon after Limits a List may use what Limits read: a
	// controller asks for both, and one reading answers both.
	pairLifetime = time.Second
	// settled is how long reads may lag behind the switching off of a check.
	settled = time.Minute
)

// A routeTables is one or more route tables of a VPC.
type routeTables struct {
	api    *client
	config Config

	view  recent[[]types.RouteTable] // all tables of the VPC
	ports recent[fleet]
	pair  recent[reading] // what Limits read, for the List after it
	fetch sync.Mutex      // one reading of the interfaces at a time

	mu       sync.Mutex
	switched moments // when checks were switched off
	// nodes are the names of the nodes seen, by their interfaces, for Preflight.
	nodes map[vpc.NextHop]string
}

// A reading is all that a full list needs.
type reading struct {
	tables []types.RouteTable // the managed ones
	fleet  fleet
}

func (t *routeTables) readTables(ctx context.Context) ([]types.RouteTable, error) {
	tables, err := t.api.tablesOf(ctx, t.config.VpcID)
	if err != nil {
		return nil, fmt.Errorf("VPC %s: %w", t.config.VpcID, err)
	}
	t.view.put(tables)
	return tables, nil
}

func (t *routeTables) recentTables(ctx context.Context) ([]types.RouteTable, error) {
	if tables, ok := t.view.get(tableLifetime); ok {
		return tables, nil
	}
	return t.readTables(ctx)
}

// interfaces returns the interfaces of instances, read no longer than age ago.
func (t *routeTables) interfaces(ctx context.Context, age time.Duration) (fleet, error) {
	t.fetch.Lock()
	defer t.fetch.Unlock()
	if known, ok := t.ports.get(age); ok && ctx.Err() == nil {
		return known, nil
	}
	found, err := t.api.attachedInterfaces(ctx, t.config.VpcID)
	if err != nil {
		return fleet{}, fmt.Errorf("VPC %s: %w", t.config.VpcID, err)
	}
	f := newFleet(found)
	t.ports.put(f)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.nodes, func(id vpc.NextHop, _ string) bool { _, there := f.byID[id]; return !there })
	maps.DeleteFunc(t.switched, func(id vpc.NextHop, _ time.Time) bool { return !t.switched.within(id, settled) })
	return f, nil
}

// read reads the managed tables and the interfaces.
func (t *routeTables) read(ctx context.Context) (reading, error) {
	tables, err := t.readTables(ctx)
	if err != nil {
		return reading{}, err
	}
	managed, err := t.managed(ctx, tables)
	if err != nil {
		return reading{}, err
	}
	f, err := t.interfaces(ctx, 0)
	return reading{managed, f}, err
}

// managed picks the tables that are written to.
func (t *routeTables) managed(ctx context.Context, tables []types.RouteTable) ([]types.RouteTable, error) {
	switch {
	case len(t.config.Tables) > 0:
		return pick(tables, func(x types.RouteTable) bool { return slices.Contains(t.config.Tables, value(x.RouteTableId)) }), nil
	case t.config.TableTag != "":
		return pick(tables, func(x types.RouteTable) bool { return tagged(x, t.config.TableTag) }), nil
	}
	subnets, err := t.api.subnetsOf(ctx, t.config.VpcID)
	if err != nil {
		return nil, fmt.Errorf("VPC %s: %w", t.config.VpcID, err)
	}
	used := map[string]bool{}
	for _, s := range subnets {
		used[tableOf(tables, value(s.SubnetId))] = true
	}
	return pick(tables, func(x types.RouteTable) bool { return used[value(x.RouteTableId)] }), nil
}

func pick(tables []types.RouteTable, wanted func(types.RouteTable) bool) []types.RouteTable {
	return slices.DeleteFunc(slices.Clone(tables), func(x types.RouteTable) bool { return !wanted(x) })
}

func tagged(x types.RouteTable, tag string) bool {
	return slices.ContainsFunc(x.Tags, func(t types.Tag) bool { return value(t.Key)+"="+value(t.Value) == tag })
}

// tableOf names the table that a subnet uses: the one that it is attached to,
// else the VPC's main table.
func tableOf(tables []types.RouteTable, subnet string) (id string) {
	for _, x := range tables {
		for _, a := range x.Associations {
			switch {
			case value(a.SubnetId) == subnet:
				return value(x.RouteTableId)
			case value(a.Main):
				id = value(x.RouteTableId)
			}
		}
	}
	return id
}

// NextHop returns the network interface of the node's instance that holds an
// internal address of the node, for both families. Where the tables are named
// or tagged, a node whose subnet uses another table is an error of class Invalid
// that names both: its pods could not send.
func (t *routeTables) NextHop(ctx context.Context, node vpc.Node, _ vpc.Family) (vpc.NextHop, error) {
	instance, err := instanceOf(node)
	if err != nil {
		return "", err
	}
	p, err := t.locate(ctx, node, instance)
	if err != nil {
		return "", fmt.Errorf("node %s: %w", node.Name, err)
	}
	t.mu.Lock()
	t.nodes[vpc.NextHop(p.id)] = node.Name
	t.mu.Unlock()
	if len(t.config.Tables) == 0 && t.config.TableTag == "" {
		return vpc.NextHop(p.id), nil
	}
	tables, err := t.recentTables(ctx)
	if err != nil {
		return "", err
	}
	managed, err := t.managed(ctx, tables)
	if err != nil {
		return "", err
	}
	used := tableOf(tables, p.subnet)
	if !slices.ContainsFunc(managed, func(x types.RouteTable) bool { return value(x.RouteTableId) == used }) {
		return "", vpc.Errorf(vpc.Invalid, "node %s: its interface %s is in subnet %s, which uses route table %s, and that one is not managed: attach the subnet to a managed table, or manage %s too", node.Name, p.id, p.subnet, used, used)
	}
	return vpc.NextHop(p.id), nil
}

// locate finds the interface of a node, in a fresh list if it must.
func (t *routeTables) locate(ctx context.Context, node vpc.Node, instance string) (p port, err error) {
	for _, age := range []time.Duration{fleetLifetime, newInterfaceAfter} {
		f, err := t.interfaces(ctx, age)
		if err != nil {
			return port{}, err
		}
		if p, err = f.find(node, instance); err == nil || age == newInterfaceAfter {
			return p, err
		}
	}
	return p, err
}

// List returns the entries of the managed tables.
func (t *routeTables) List(ctx context.Context) ([]vpc.Route, error) {
	now, ok := t.pair.take(pairLifetime)
	if !ok || ctx.Err() != nil {
		var err error
		if now, err = t.read(ctx); err != nil {
			return nil, err
		}
	}
	var routes []vpc.Route
	for _, x := range now.tables {
		for _, e := range x.Routes {
			r := routeOf(value(x.RouteTableId), e)
			if byHand(e) && t.inRanges(r) && t.checks(now.fleet, r.NextHop) {
				r.Dropped = dropped(r.NextHop)
			}
			routes = append(routes, r)
		}
	}
	return routes, nil
}

func (t *routeTables) inRanges(r vpc.Route) bool {
	return r.Destination.IsValid() && slices.ContainsFunc(t.config.ClusterCIDRs, r.Destination.Overlaps)
}

// checks is true when the source and destination check of an interface is on and
// is ours to switch off.
func (t *routeTables) checks(f fleet, id vpc.NextHop) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.config.Check == SwitchOff && f.byID[id].check && !t.switched.within(id, settled)
}

// Limits tells how full the managed tables are, by the fuller family: the quota
// holds for each.
func (t *routeTables) Limits(ctx context.Context) (vpc.Limits, error) {
	now, err := t.read(ctx)
	if err != nil {
		return vpc.Limits{}, err
	}
	t.pair.put(now)
	limits := vpc.Limits{Families: []vpc.Family{vpc.IPv4, vpc.IPv6}, Batch: 1}
	for _, x := range now.tables {
		limits.Tables = append(limits.Tables, vpc.TableLimits{
			Table: value(x.RouteTableId), Used: max(usedBy(x, vpc.IPv4), usedBy(x, vpc.IPv6)), Max: t.config.RoutesPerTable,
		})
	}
	return limits, nil
}

// describe says in words what a change does.
func describe(c vpc.Change) string {
	if c.Op == vpc.Delete {
		return fmt.Sprintf("delete %s by %s from %s", c.Route.Destination, c.Route.NextHop, c.Route.Table)
	}
	return fmt.Sprintf("%s %s by %s in %s", c.Op, c.Route.Destination, c.Route.NextHop, c.Route.Table)
}

// checkChange says why a change can never be made, or returns nil.
func checkChange(c vpc.Change) error {
	d := c.Route.Destination
	invalid := func(reason string) error {
		return &vpc.Error{Class: vpc.Invalid, Op: describe(c), Err: fmt.Errorf("%s", reason)}
	}
	switch {
	case !d.IsValid() || d != d.Masked() || d.Addr().Is4In6():
		return invalid("the destination is not a range")
	case c.Op != vpc.Delete && !strings.HasPrefix(string(c.Route.NextHop), "eni-"):
		return invalid("the next hop is not a network interface")
	}
	return nil
}
