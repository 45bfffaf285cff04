package tencent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	vpcapi "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc/v20170312"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// maxRefused is how many refused calls one Apply makes to find the entries at
// fault. What is still unproven then is answered as Transient: the entries
// found are out of the next batch.
const maxRefused = 24

// A kind is a call of the API that takes a batch.
type kind int

const (
	replacing kind = iota
	enabling
	creating
	deleting
)

func kindOf(c vpc.Change) kind {
	switch {
	case c.Op == vpc.Delete:
		return deleting
	case c.Op == vpc.Create:
		return creating
	case c.Old.NextHop == c.Route.NextHop+disabledSuffix:
		return enabling
	default:
		return replacing
	}
}

// Apply makes the changes of each table in batches: replaces in place and what
// is to be switched on, then creates and deletes in the order in which the plan
// has the first of them. A batch that fails is read back; what the table holds
// by then is answered by that, and the rest is tried in smaller batches when
// the fault lies with single entries. A rate limit or a missing permission
// ends the whole: the rest is answered with it, untried.
func (t *routeTables) Apply(ctx context.Context, changes []vpc.Change) []error {
	t.pair.forget()
	defer t.pair.forget()
	run := &routesRun{routeTables: t, changes: slices.Clone(changes), errs: make([]error, len(changes))}
	for _, table := range run.tables() {
		run.apply(ctx, table)
	}
	return run.errs
}

// A routesRun is one Apply.
type routesRun struct {
	*routeTables
	changes []vpc.Change
	errs    []error
	halt    error // why no further call is made
	refused int   // calls
}

// tables checks the changes and lists the tables of the good ones, in order.
func (r *routesRun) tables() (tables []string) {
	for i, c := range r.changes {
		if r.errs[i] = checkChange(c); r.errs[i] == nil && !slices.Contains(tables, c.Route.Table) {
			tables = append(tables, c.Route.Table)
		}
	}
	return tables
}

func (r *routesRun) apply(ctx context.Context, table string) {
	byKind := map[kind][]int{}
	order := []kind{replacing, enabling}
	for _, i := range r.identified(ctx, table) {
		c := r.changes[i]
		k := kindOf(c)
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
		byKind[k] = append(byKind[k], i)
	}
	for _, k := range order {
		if k == creating {
			byKind[k] = r.unclaimed(ctx, table, byKind[k])
		}
		for batch := range slices.Chunk(byKind[k], r.config.BatchSize) {
			r.write(ctx, table, k, batch)
		}
	}
}

// identified returns the changes of a table, each with the handle of the entry
// that it takes away, and answers those whose entry is gone. A caller that made
// a route and has not listed it since knows no handle: the entry is then found
// by what it does, and only if it carries our mark.
func (r *routesRun) identified(ctx context.Context, table string) (changes []int) {
	var nameless []int
	for i, c := range r.changes {
		if r.errs[i] != nil || c.Route.Table != table {
			continue
		}
		if was, ok := taken(c); ok && was.ID == "" {
			nameless = append(nameless, i)
		}
		changes = append(changes, i)
	}
	if len(nameless) == 0 {
		return changes
	}
	now, err := r.entries(ctx, table, 0)
	if err != nil {
		r.refuse(nameless, err)
	}
	for _, i := range nameless {
		c := &r.changes[i]
		was, _ := taken(*c)
		found, there := now.find(was)
		switch {
		case err != nil:
		case !there:
			r.settle(now, kindOf(*c), []int{i})
		case found.Owner != r.config.Owner || found.ID == "":
			r.errs[i] = invalidChange(*c, fmt.Sprintf("%s by %s is not this cluster's", was.Destination, was.NextHop))
		case c.Op == vpc.Delete:
			c.Route.ID = found.ID
		default:
			c.Old.ID = found.ID
		}
	}
	return slices.DeleteFunc(changes, func(i int) bool {
		was, ok := taken(r.changes[i])
		return ok && was.ID == ""
	})
}

// unclaimed returns the creates whose destinations have no entry yet, and
// answers the others. The cloud may not: it takes a second machine for a range
// and splits the packets between the two. A look at what was read a moment ago
// is enough, unless it finds something.
func (r *routesRun) unclaimed(ctx context.Context, table string, creates []int) (rest []int) {
	if len(creates) == 0 {
		return nil
	}
	for _, age := range []time.Duration{momentAgo, 0} {
		now, err := r.entries(ctx, table, age)
		if err != nil {
			r.refuse(creates, err)
			return nil
		}
		if !slices.ContainsFunc(creates, func(i int) bool { return len(now.byDestination[r.changes[i].Route.Destination]) > 0 }) {
			return creates
		}
		if age == 0 {
			rest = r.settle(now, creating, creates)
		}
	}
	return rest
}

// entries returns a table's entries, read no longer than age ago.
func (r *routesRun) entries(ctx context.Context, table string, age time.Duration) (entryIndex, error) {
	tables, ok := r.view.get(age)
	if !ok {
		var err error
		if tables, err = r.read(ctx); err != nil {
			return entryIndex{}, err
		}
	}
	for _, t := range tables {
		if value(t.RouteTableId) == table {
			return indexEntries(t.RouteSet), nil
		}
	}
	return entryIndex{}, vpc.Errorf(vpc.NotFound, "VPC %s has no route table %s", r.config.VpcID, table)
}

// write makes one batch, in parts if it must.
func (r *routesRun) write(ctx context.Context, table string, k kind, batch []int) {
	if len(batch) == 0 {
		return
	}
	if r.halt != nil {
		r.fail(batch, fmt.Errorf("not tried after %w", r.halt))
		return
	}
	err := r.send(ctx, table, k, batch)
	if err == nil {
		return
	}
	if stops(err) {
		r.refuse(batch, err)
		return
	}
	r.refused++
	now, readErr := r.api.routeTables(ctx, "", table)
	if readErr != nil || len(now) != 1 {
		r.fail(batch, err)
		return
	}
	rest := r.settle(indexEntries(now[0].RouteSet), k, batch)
	switch class := vpc.ClassOf(err); {
	case len(rest) == 0:
	case class == vpc.Transient || class == vpc.InProgress || len(batch) == 1:
		r.fail(rest, err)
	case r.refused >= maxRefused:
		r.fail(rest, vpc.Errorf(vpc.Transient, "not tried alone after a batch was refused: %w", err))
	case len(rest) < len(batch): // without those that were in the way
		r.write(ctx, table, k, rest)
	case class == vpc.Quota && r.room(ctx, now[0]) < len(rest):
		room := r.room(ctx, now[0])
		r.fail(rest[room:], err)
		r.write(ctx, table, k, rest[:room])
	default:
		r.write(ctx, table, k, rest[:len(rest)/2])
		r.write(ctx, table, k, rest[len(rest)/2:])
	}
}

// room is how many more routes a table takes; a large number when not known.
func (r *routesRun) room(ctx context.Context, t *vpcapi.RouteTable) int {
	const plenty = 1 << 30
	most, err := r.maxRoutes(ctx)
	if err != nil || most == 0 {
		return plenty
	}
	return max(0, most-countUsed(t.RouteSet))
}

// refuse is fail for an error that may concern all further calls.
func (r *routesRun) refuse(batch []int, err error) {
	if stops(err) {
		r.halt = err
	}
	r.fail(batch, err)
}

// fail answers changes with an error.
func (r *routesRun) fail(batch []int, err error) {
	wait, _ := vpc.RetryAfter(err)
	for _, i := range batch {
		r.errs[i] = &vpc.Error{Class: vpc.ClassOf(err), Op: describe(r.changes[i]), RetryAfter: wait, Err: err}
	}
}

// send makes the call for one batch.
func (r *routesRun) send(ctx context.Context, table string, k kind, batch []int) error {
	entries := make([]*vpcapi.Route, len(batch))
	var items []*string
	for n, i := range batch {
		c := r.changes[i]
		entries[n] = entryFor(c.Route, r.config.Owner)
		if was, ok := taken(c); ok {
			entries[n].RouteItemId, entries[n].RouteId = handleOf(was)
			items = append(items, entries[n].RouteItemId)
		}
		if k == deleting {
			entries[n] = &vpcapi.Route{RouteItemId: entries[n].RouteItemId, RouteId: entries[n].RouteId}
		}
	}
	switch k {
	case creating:
		made, err := r.api.createRoutes(ctx, table, entries)
		return r.all(made, batch, err)
	case replacing:
		now, err := r.api.replaceRoutes(ctx, table, entries)
		if err := r.all(now, batch, err); err != nil {
			return err
		}
		return r.wake(ctx, table, now)
	case enabling:
		return r.api.enableRoutes(ctx, table, items)
	default:
		return r.api.deleteRoutes(ctx, table, entries)
	}
}

// all checks that an answer names every entry of a batch as made; otherwise the
// table has to be read.
func (r *routesRun) all(made []*vpcapi.Route, batch []int, err error) error {
	if err != nil {
		return err
	}
	now := indexEntries(made)
	for _, i := range batch {
		if c := r.changes[i]; !now.leads(c.Route) {
			return vpc.Errorf(vpc.Transient, "the answer does not name %s by %s", c.Route.Destination, c.Route.NextHop)
		}
	}
	return nil
}

// wake switches on what stayed disabled when it was replaced.
func (r *routesRun) wake(ctx context.Context, table string, now []*vpcapi.Route) error {
	var asleep []*string
	for _, e := range now {
		if e.Enabled != nil && !*e.Enabled {
			asleep = append(asleep, e.RouteItemId)
		}
	}
	if len(asleep) == 0 {
		return nil
	}
	return r.api.enableRoutes(ctx, table, asleep)
}

// settle answers those changes of a batch that the table decides, and returns
// the others.
func (r *routesRun) settle(now entryIndex, k kind, batch []int) (rest []int) {
	for _, i := range batch {
		c := r.changes[i]
		was, _ := taken(c)
		_, there := now.byID[was.ID]
		switch {
		case k == deleting && !there:
		case k == deleting:
			rest = append(rest, i)
		case now.enabled(c.Route):
		case k != creating && !there:
			r.errs[i] = &vpc.Error{Class: vpc.NotFound, Op: describe(c), Err: fmt.Errorf("the entry to change is gone")}
		case k == creating && len(now.byDestination[c.Route.Destination]) > 0:
			r.errs[i] = &vpc.Error{Class: vpc.Exists, Op: describe(c), Err: fmt.Errorf("the table has %s by %v", c.Route.Destination, now.hops(c.Route.Destination))}
		default:
			rest = append(rest, i)
		}
	}
	return rest
}

// An entryIndex finds the entries of a table.
type entryIndex struct {
	byID          map[string]vpc.Route
	byDestination map[netip.Prefix][]vpc.Route
}

func indexEntries(entries []*vpcapi.Route) entryIndex {
	x := entryIndex{map[string]vpc.Route{}, map[netip.Prefix][]vpc.Route{}}
	for _, e := range entries {
		r := routeOf("", e)
		x.byDestination[r.Destination] = append(x.byDestination[r.Destination], r)
		if r.ID != "" {
			x.byID[r.ID] = r
		}
	}
	return x
}

// find returns the entry with the destination and next hop of a route.
func (x entryIndex) find(like vpc.Route) (r vpc.Route, ok bool) {
	all := x.byDestination[like.Destination]
	i := slices.IndexFunc(all, func(r vpc.Route) bool { return r.NextHop == like.NextHop })
	if i < 0 {
		return vpc.Route{}, false
	}
	return all[i], true
}

// leads is true when an entry has the destination and the next hop of a wanted
// route, switched on or not.
func (x entryIndex) leads(want vpc.Route) bool {
	return slices.ContainsFunc(x.byDestination[want.Destination], func(r vpc.Route) bool {
		return r.NextHop == want.NextHop || r.NextHop == want.NextHop+disabledSuffix
	})
}

// enabled is leads for entries that are switched on.
func (x entryIndex) enabled(want vpc.Route) bool {
	_, ok := x.find(want)
	return ok
}

func (x entryIndex) hops(d netip.Prefix) (hops []vpc.NextHop) {
	for _, r := range x.byDestination[d] {
		hops = append(hops, r.NextHop)
	}
	return hops
}
