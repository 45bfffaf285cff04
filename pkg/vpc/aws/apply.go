package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// maxInFlight is how many calls wait for their turn or their answers at once.
const maxInFlight = 100

// Apply makes one call per route, up to maxInFlight at once, at the configured
// pace; deletes in front of other changes are done before those begin, since a
// full table needs their room. Replaces and deletes look at the table first: the
// API would overwrite and delete whatever has the destination. Before a route
// leads to an interface, that interface's check is switched off if it may be. A
// rate limit or a missing permission ends the whole: the rest is answered with
// it, untried. Afterwards the tables are read once where an answer left open what
// became of a change, and what they hold decides.
func (t *routeTables) Apply(ctx context.Context, changes []vpc.Change) []error {
	t.pair.forget()
	defer t.pair.forget()
	run := &applying{routeTables: t, changes: changes, errs: make([]error, len(changes)), open: make([]bool, len(changes))}
	for i, c := range changes {
		run.errs[i] = checkChange(c)
	}
	run.looks = run.look(ctx, func(i int) bool { return run.errs[i] == nil && changes[i].Op != vpc.Create })
	for _, group := range run.groups() {
		run.do(ctx, group)
	}
	run.settle(ctx)
	return run.errs
}

// An applying is one Apply. Its goroutines touch disjoint indexes of the slices.
type applying struct {
	*routeTables
	changes []vpc.Change
	errs    []error
	open    []bool // the outcome is what the table says
	looks   map[string]look

	mu   sync.Mutex
	halt error // why no further call is made
}

// A look is what a table held, or why that is not known.
type look struct {
	entries map[netip.Prefix]vpc.Route // those made by hand
	err     error
}

// look reads the tables of the changes that need it.
func (r *applying) look(ctx context.Context, needed func(i int) bool) map[string]look {
	looks := map[string]look{}
	for i, c := range r.changes {
		if _, done := looks[c.Route.Table]; done || !needed(i) {
			continue
		}
		tables, err := r.api.tablesByID(ctx, c.Route.Table)
		looks[c.Route.Table] = look{index(tables), err}
		r.refused(err)
	}
	return looks
}

func index(tables []types.RouteTable) map[netip.Prefix]vpc.Route {
	entries := map[netip.Prefix]vpc.Route{}
	for _, x := range tables {
		for _, e := range x.Routes {
			if r := routeOf(value(x.RouteTableId), e); byHand(e) && r.Destination.IsValid() {
				entries[r.Destination] = r
			}
		}
	}
	return entries
}

// groups cuts the changes where deletes end and where they begin.
func (r *applying) groups() (groups [][]int) {
	deletes := false
	for i, c := range r.changes {
		if r.errs[i] != nil {
			continue
		}
		if isDelete := c.Op == vpc.Delete; len(groups) == 0 || isDelete != deletes {
			groups, deletes = append(groups, nil), isDelete
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], i)
	}
	return groups
}

func (r *applying) do(ctx context.Context, group []int) {
	next := atomic.Int64{}
	var wg sync.WaitGroup
	for range min(maxInFlight, len(group)) {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(group)); n = next.Add(1) - 1 {
				i := group[n]
				if err := r.one(ctx, i); err != nil {
					wait, _ := vpc.RetryAfter(err)
					r.errs[i] = &vpc.Error{Class: vpc.ClassOf(err), Op: describe(r.changes[i]), RetryAfter: wait, Err: err}
				}
			}
		})
	}
	wg.Wait()
}

// one makes one change.
func (r *applying) one(ctx context.Context, i int) error {
	c := r.changes[i]
	now := r.looks[c.Route.Table]
	entry, there := now.entries[c.Route.Destination]
	switch {
	case c.Op == vpc.Create:
		return r.lead(ctx, i, r.api.createRoute)
	case vpc.ClassOf(now.err) == vpc.NotFound && now.err != nil && c.Op == vpc.Delete:
		return nil // the table is gone
	case now.err != nil:
		return now.err
	case c.Op == vpc.Delete && there && entry.NextHop != c.Route.NextHop:
		return nil // ours is gone, and somebody else's is in its place
	case c.Op == vpc.Delete:
		// Sent as well when the look does not show it: reads lag behind.
		return r.remove(ctx, i)
	case !there:
		return vpc.Errorf(vpc.NotFound, "the entry to change is gone")
	case entry.NextHop == c.Route.NextHop:
		return r.uncheck(ctx, c.Route.NextHop)
	case entry.NextHop != c.Old.NextHop:
		return vpc.Errorf(vpc.Exists, "the table has %s by %s, which is not the entry to change", c.Route.Destination, entry.NextHop)
	default:
		return r.lead(ctx, i, r.api.replaceRoute)
	}
}

// lead makes a route to an interface that forwards.
func (r *applying) lead(ctx context.Context, i int, send func(context.Context, vpc.Route, bool) error) error {
	c := r.changes[i]
	if err := r.uncheck(ctx, c.Route.NextHop); err != nil {
		return err
	}
	err := r.call(func() error { return send(ctx, c.Route, false) })
	switch class := vpc.ClassOf(err); {
	case err == nil, vpc.IsCancelled(err):
	case class == vpc.Transient, class == vpc.Exists, class == vpc.InProgress:
		r.open[i] = true
	case c.Op == vpc.Replace && class == vpc.Invalid: // how the API says that there is no such route
		r.open[i] = true
	}
	return err
}

func (r *applying) remove(ctx context.Context, i int) error {
	err := r.call(func() error { return r.api.deleteRoute(ctx, r.changes[i].Route, false) })
	if vpc.ClassOf(err) == vpc.NotFound && err != nil {
		return nil
	}
	r.open[i] = err != nil && vpc.ClassOf(err) == vpc.Transient && !vpc.IsCancelled(err)
	return err
}

// uncheck switches an interface's source and destination check off, if it is on
// as far as is known. That it may not is the trouble of this one node, not of
// every route, so the error is of class Transient.
func (r *applying) uncheck(ctx context.Context, id vpc.NextHop) error {
	f, _ := r.ports.get(fleetLifetime)
	if !r.checks(f, id) {
		return nil
	}
	err := r.call(func() error {
		err := r.api.uncheck(ctx, id, false)
		if err != nil && vpc.ClassOf(err) == vpc.Denied {
			return vpc.Errorf(vpc.Transient, "%w", err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s and cannot be switched off: %w", dropped(id), err)
	}
	r.routeTables.mu.Lock()
	defer r.routeTables.mu.Unlock()
	r.switched[id] = time.Now()
	return nil
}

// call makes a call unless an earlier answer forbids it.
func (r *applying) call(send func() error) error {
	r.mu.Lock()
	halt := r.halt
	r.mu.Unlock()
	if halt != nil {
		return fmt.Errorf("not tried after %w", halt)
	}
	err := send()
	r.refused(err)
	return err
}

// refused notes an answer that every further call would get as well.
func (r *applying) refused(err error) {
	class := vpc.ClassOf(err)
	if err == nil || class != vpc.Throttled && class != vpc.Denied && !vpc.IsCancelled(err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.halt = err
}

// settle reads the tables of changes whose outcome is open, and answers by what
// they hold. A change that reads do not show yet keeps its error.
func (r *applying) settle(ctx context.Context) {
	if !slices.Contains(r.open, true) || ctx.Err() != nil {
		return
	}
	looks := r.look(ctx, func(i int) bool { return r.open[i] })
	for i, c := range r.changes {
		if now := looks[c.Route.Table]; r.open[i] && now.err == nil {
			r.errs[i] = now.judge(c, r.errs[i])
		}
	}
}

// judge returns nil when the table is as a change wants it, else why it is not.
func (l look) judge(c vpc.Change, err error) error {
	entry, there := l.entries[c.Route.Destination]
	right := there && entry.NextHop == c.Route.NextHop
	answer := func(class vpc.Class, format string, args ...any) error {
		return &vpc.Error{Class: class, Op: describe(c), Err: fmt.Errorf(format, args...)}
	}
	switch {
	case right != (c.Op == vpc.Delete):
		return nil
	case c.Op == vpc.Create && there:
		return answer(vpc.Exists, "the table has %s by %s", c.Route.Destination, entry.NextHop)
	case c.Op == vpc.Replace && !there && vpc.ClassOf(err) == vpc.Invalid:
		return answer(vpc.NotFound, "the entry to change is gone")
	default:
		return err
	}
}
