package tencent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// maxInFlight is how many calls wait for their answers at once: enough for the
// documented 20 a second when each takes 5 seconds.
const maxInFlight = 100

// A globalRoute is one cluster route table. The table is the owner's mark: a
// cluster has one of its own, so everything in it is ours.
type globalRoute struct {
	api   *client
	owner string
	want  clusterTable
	pair  recent[[]clusterRoute] // what Limits read, for the List after it
}

func newGlobalRoute(ctx context.Context, c Config, api *client) (*globalRoute, error) {
	t := &globalRoute{api: api, owner: c.Owner, want: clusterTable{c.Tables[0], c.ClusterCIDRs[0].String(), c.VpcID}}
	err := t.verify(ctx)
	if c.CreateTable && vpc.ClassOf(err) == vpc.NotFound {
		err = api.createClusterTable(ctx, t.want)
		// Somebody else may have made it meanwhile, for another VPC or range.
		if err == nil || vpc.ClassOf(err) == vpc.Exists {
			err = t.verify(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cluster route table %s: %w", t.want.RouteTableName, err)
	}
	return t, nil
}

// verify reads the table's description. An error of class NotFound means that
// it is not there.
func (t *globalRoute) verify(ctx context.Context) error {
	tables, err := t.api.clusterTables(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tables, func(x clusterTable) bool { return x.RouteTableName == t.want.RouteTableName })
	switch {
	case i < 0:
		return vpc.Errorf(vpc.NotFound, "it does not exist: create it for VPC %s and range %s, or allow its creation", t.want.VpcID, t.want.RouteTableCidrBlock)
	case tables[i].VpcID != t.want.VpcID:
		return vpc.Errorf(vpc.Invalid, "it belongs to VPC %s, not to %s: it is another cluster's", tables[i].VpcID, t.want.VpcID)
	case tables[i].RouteTableCidrBlock != t.want.RouteTableCidrBlock:
		return vpc.Errorf(vpc.Invalid, "its range is %s, not the cluster CIDR %s: it is another cluster's, or the cluster CIDR is wrong", tables[i].RouteTableCidrBlock, t.want.RouteTableCidrBlock)
	}
	return nil
}

// NextHop returns the node's first internal IPv4 address.
func (t *globalRoute) NextHop(_ context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	addresses, err := addressesOf(node, family)
	if err != nil {
		return "", err
	}
	return vpc.NextHop(addresses[0].String()), nil
}

// List returns the table's routes, all marked ours.
func (t *globalRoute) List(ctx context.Context) ([]vpc.Route, error) {
	found, ok := t.pair.take(pairLifetime)
	if !ok || ctx.Err() != nil {
		var err error
		if found, err = t.api.clusterRoutes(ctx, t.want.RouteTableName); err != nil {
			return nil, err
		}
	}
	routes := make([]vpc.Route, len(found))
	for i, r := range found {
		routes[i] = vpc.Route{Table: t.want.RouteTableName, NextHop: vpc.NextHop(r.GatewayIP), Owner: t.owner}
		routes[i].Destination, routes[i].Text = parseDestination(r.DestinationCidrBlock)
	}
	return routes, nil
}

// parseDestination reads a range, or returns its text when it is not one.
func parseDestination(s string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p != p.Masked() {
		return netip.Prefix{}, cmp.Or(s, "(no destination)")
	}
	return p, ""
}

// Limits tells the table's size; the cloud does not tell its maximum.
func (t *globalRoute) Limits(ctx context.Context) (vpc.Limits, error) {
	found, err := t.api.clusterRoutes(ctx, t.want.RouteTableName)
	if err != nil {
		return vpc.Limits{}, err
	}
	t.pair.put(found)
	return vpc.Limits{
		Tables:   []vpc.TableLimits{{Table: t.want.RouteTableName, Used: len(found)}},
		Families: []vpc.Family{vpc.IPv4},
	}, nil
}

// Apply makes one call per route, up to maxInFlight at once, at the configured
// pace. Changes that need each other (one node address carries one range, and
// ranges may not overlap) are made one after the other, what is in the way
// first. A rate limit or a missing permission ends the whole: the rest is
// answered with it, untried. Afterwards the table is read once, if anything
// failed, and what it holds decides.
func (t *globalRoute) Apply(ctx context.Context, changes []vpc.Change) []error {
	t.pair.forget()
	defer t.pair.forget()
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = t.check(c)
	}
	run := &clusterRun{table: t, changes: changes, errs: errs, removed: make([]bool, len(changes))}
	groups := entangled(changes, errs)
	next := atomic.Int64{}
	var wg sync.WaitGroup
	for range min(maxInFlight, len(groups)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(groups)); i = next.Add(1) - 1 {
				run.apply(ctx, groups[i])
			}
		})
	}
	wg.Wait()
	t.settle(ctx, changes, errs)
	return errs
}

// check says why a change can never be made, or returns nil.
func (t *globalRoute) check(c vpc.Change) error {
	if c.Route.Table != t.want.RouteTableName {
		return invalidChange(c, "this is not the managed table "+t.want.RouteTableName)
	}
	return checkChange(c)
}

// A clusterRun is one Apply. Its groups touch disjoint indexes of the slices.
type clusterRun struct {
	table   *globalRoute
	changes []vpc.Change
	errs    []error
	removed []bool // the entry that a change takes away is gone

	mu   sync.Mutex
	halt error // why no further call is made
}

// apply makes the changes of one group, in their order.
func (r *clusterRun) apply(ctx context.Context, group []int) {
	for _, i := range group {
		if err := r.one(ctx, group, i); err != nil {
			r.errs[i] = err
		}
	}
}

func (r *clusterRun) one(ctx context.Context, group []int, i int) error {
	c := r.changes[i]
	if c.Op == vpc.Delete {
		return r.remove(ctx, i)
	}
	for _, j := range append([]int{i}, group...) {
		if j == i || r.inTheWay(j, c.Route) {
			if err := r.remove(ctx, j); err != nil && !r.gone(ctx, j, err) {
				return &vpc.Error{Class: vpc.ClassOf(err), Op: describe(c), Err: fmt.Errorf("%s is in the way and stays: %w", entry(r.changes[j]), err)}
			}
		}
	}
	return r.call(describe(c), func() error {
		return r.table.api.createClusterRoute(ctx, c.Route.Table, clusterRouteOf(c.Route))
	})
}

// taken is the entry that a change takes away, if any.
func taken(c vpc.Change) (route vpc.Route, ok bool) {
	switch c.Op {
	case vpc.Delete:
		return c.Route, true
	case vpc.Replace:
		return c.Old, true
	default:
		return vpc.Route{}, false
	}
}

func entry(c vpc.Change) string {
	r, _ := taken(c)
	return fmt.Sprintf("%s by %s", r.Destination, r.NextHop)
}

// inTheWay is true when change j takes away an entry that keeps a route from
// being made, and has not done so yet.
func (r *clusterRun) inTheWay(j int, want vpc.Route) bool {
	old, ok := taken(r.changes[j])
	return ok && !r.removed[j] && (old.NextHop == want.NextHop || old.Destination.Overlaps(want.Destination))
}

// remove takes away the entry that a change takes away, once.
func (r *clusterRun) remove(ctx context.Context, i int) error {
	old, ok := taken(r.changes[i])
	if !ok || r.removed[i] {
		return nil
	}
	err := r.call("delete "+entry(r.changes[i])+" from "+old.Table, func() error {
		return r.table.api.deleteClusterRoute(ctx, old.Table, clusterRouteOf(old))
	})
	r.removed[i] = err == nil
	return err
}

// gone is true when an entry whose removal failed is not there after all.
func (r *clusterRun) gone(ctx context.Context, i int, err error) bool {
	if stops(err) {
		return false
	}
	found, listErr := r.table.List(ctx)
	old, _ := taken(r.changes[i])
	r.removed[i] = listErr == nil && indexRoutes(found).judge(vpc.Change{Op: vpc.Delete, Route: old}) == nil
	return r.removed[i]
}

// call makes a call unless an earlier answer forbids it, and names it.
func (r *clusterRun) call(op string, send func() error) error {
	r.mu.Lock()
	halt := r.halt
	r.mu.Unlock()
	if halt != nil {
		return &vpc.Error{Class: vpc.ClassOf(halt), Op: op, Err: fmt.Errorf("not tried after %w", halt)}
	}
	err := send()
	if err == nil {
		return nil
	}
	if stops(err) {
		r.mu.Lock()
		r.halt = err
		r.mu.Unlock()
	}
	wait, _ := vpc.RetryAfter(err)
	return &vpc.Error{Class: vpc.ClassOf(err), Op: op, RetryAfter: wait, Err: err}
}

// stops is true for an answer that every further call would get as well.
func stops(err error) bool {
	class := vpc.ClassOf(err)
	return class == vpc.Throttled || class == vpc.Denied || vpc.IsCancelled(err)
}

func clusterRouteOf(r vpc.Route) clusterRoute {
	return clusterRoute{DestinationCidrBlock: r.Destination.String(), GatewayIP: string(r.NextHop)}
}

// settle reads the table if any change failed in a way that leaves open what
// became of it ("exists already", a lost answer, a delete of what is gone) and
// answers by what is there.
func (t *globalRoute) settle(ctx context.Context, changes []vpc.Change, errs []error) {
	open := func(err error) bool {
		return err != nil && !stops(err)
	}
	if !slices.ContainsFunc(errs, open) || ctx.Err() != nil {
		return
	}
	found, err := t.List(ctx)
	if err != nil {
		return // the errors stand
	}
	table := indexRoutes(found)
	for i, c := range changes {
		if !open(errs[i]) || t.check(c) != nil {
			continue
		}
		switch err := table.judge(c); {
		case err == nil:
			errs[i] = nil
		case vpc.ClassOf(errs[i]) == vpc.Exists:
			errs[i] = err
		}
	}
}

// A clusterIndex finds the routes of a table by destination and by next hop.
type clusterIndex struct {
	byDestination map[netip.Prefix]vpc.NextHop
	byHop         map[vpc.NextHop]netip.Prefix
}

func indexRoutes(routes []vpc.Route) clusterIndex {
	x := clusterIndex{map[netip.Prefix]vpc.NextHop{}, map[vpc.NextHop]netip.Prefix{}}
	for _, r := range routes {
		x.byDestination[r.Destination] = r.NextHop
		x.byHop[r.NextHop] = r.Destination
	}
	return x
}

// judge returns nil when the table is as a change wants it, else why it is not.
func (x clusterIndex) judge(c vpc.Change) error {
	r := c.Route
	hop, there := x.byDestination[r.Destination]
	if c.Op == vpc.Delete {
		if there && hop == r.NextHop {
			return errors.New("it is still there")
		}
		return nil
	}
	other, carries := x.byHop[r.NextHop]
	exists := func(format string, args ...any) error {
		return &vpc.Error{Class: vpc.Exists, Op: describe(c), Err: fmt.Errorf(format, args...)}
	}
	switch {
	case there && hop == r.NextHop:
		return nil
	case there:
		return exists("%s leads to %s", r.Destination, hop)
	case carries:
		return exists("%s carries %s, and a node address carries one range: that route has to go first", r.NextHop, other)
	default:
		return exists("the range overlaps a route outside this table")
	}
}
