package gcp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	compute "google.golang.org/api/compute/v1"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// maxInFlight is how many changes wait for their operations at once: enough
	// for the default pace when each takes 10 seconds.
	maxInFlight = 200

	// A route is made with the API's own default priority. One that takes the
	// place of another is a step before it, so that it counts at once; after a
	// hundred steps it starts over.
	usualPriority = 1000
	firstPriority = 900
)

// Apply makes one call per route, up to maxInFlight at once, at the configured
// pace, and waits for each operation. Deletes in front of creates are done before
// those begin, since they make room. The network is read before routes are made,
// because the cloud takes a second route for a range and splits the packets
// between the two. A rate limit or a missing permission ends the whole: the rest
// is answered with it, untried.
func (n *network) Apply(ctx context.Context, changes []vpc.Change) []error {
	run := &run{network: n, changes: changes, errs: make([]error, len(changes)), gone: map[string]bool{}}
	for i, c := range changes {
		run.errs[i] = n.check(c)
	}
	for _, part := range run.parts() {
		if changes[part[0]].Op != vpc.Delete {
			part = run.look(ctx, part)
		}
		run.each(ctx, part)
	}
	return run.errs
}

// A run is one Apply.
type run struct {
	*network
	changes []vpc.Change
	errs    []error
	there   map[netip.Prefix][]*compute.Route // before the part that makes routes

	mu   sync.Mutex
	gone map[string]bool // names of routes deleted by this run
	halt error           // why no further call is made
}

// parts splits the good changes where deletes and others meet.
func (r *run) parts() (parts [][]int) {
	for i, c := range r.changes {
		if r.errs[i] != nil {
			continue
		}
		last := len(parts) - 1
		if last < 0 || (r.changes[parts[last][0]].Op == vpc.Delete) != (c.Op == vpc.Delete) {
			parts = append(parts, nil)
			last++
		}
		parts[last] = append(parts[last], i)
	}
	return parts
}

// look reads the network before routes are made. Without that nothing is.
func (r *run) look(ctx context.Context, part []int) []int {
	found, err := r.read(ctx)
	if err == nil {
		r.there = byDestination(found)
		return part
	}
	if stops(err) {
		r.stop(err)
	}
	for _, i := range part {
		r.errs[i] = wrap(describe(r.changes[i]), err)
	}
	return nil
}

// each makes the changes of one part.
func (r *run) each(ctx context.Context, part []int) {
	next := atomic.Int64{}
	var wg sync.WaitGroup
	for range min(maxInFlight, len(part)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(part)); i = next.Add(1) - 1 {
				r.errs[part[i]] = r.one(ctx, r.changes[part[i]])
			}
		})
	}
	wg.Wait()
}

func (r *run) one(ctx context.Context, c vpc.Change) error {
	switch c.Op {
	case vpc.Create:
		return wrap(describe(c), r.create(ctx, c.Route))
	case vpc.Replace:
		return wrap(describe(c), r.replace(ctx, c))
	default:
		return wrap(describe(c), r.remove(ctx, c.Route))
	}
}

// create makes a route where its range has none.
func (r *run) create(ctx context.Context, want vpc.Route) error {
	there, err := r.claimed(want, "")
	if err != nil || there {
		return err
	}
	return r.insert(ctx, want, usualPriority)
}

// replace makes the new route beside the old one and then deletes that, so the
// range is never without a route. Where the quota has no room for both the old
// one goes first: it leads nowhere useful.
func (r *run) replace(ctx context.Context, c vpc.Change) error {
	old, priority := r.old(c.Old)
	if old == nameOf(r.config.Owner, r.config.Network, c.Route.Destination, c.Route.NextHop) {
		old = "" // the same route: nothing is to go
	}
	there, err := r.claimed(c.Route, old)
	if err != nil {
		return err
	}
	if !there {
		err = r.insert(ctx, c.Route, priority)
		if vpc.ClassOf(err) == vpc.Quota && old != "" {
			if err := r.delete(ctx, old); err != nil {
				return err
			}
			return r.insert(ctx, c.Route, usualPriority)
		}
	}
	if err != nil || old == "" {
		return err
	}
	return r.delete(ctx, old)
}

// old finds the route to replace: its name, "" when there is none, and the
// priority of the one that takes its place.
func (r *run) old(was vpc.Route) (name string, priority int64) {
	for _, x := range r.there[was.Destination] {
		found := routeOf(r.config.Network, x)
		if found.ID == was.ID || was.ID == "" && found.NextHop == was.NextHop && found.Owner == r.config.Owner {
			if priority = x.Priority - 1; priority < firstPriority {
				priority = usualPriority
			}
			return found.ID, priority
		}
	}
	return was.ID, usualPriority
}

// claimed is true when the wanted route is there already; an error of class
// Exists names another one for its range. The route named except does not count.
func (r *run) claimed(want vpc.Route, except string) (there bool, err error) {
	for _, x := range r.there[want.Destination] {
		found := routeOf(r.config.Network, x)
		switch {
		case found.ID == except || r.isGone(found.ID):
		case found.NextHop != want.NextHop:
			return false, vpc.Errorf(vpc.Exists, "route %s leads %s to %q", found.ID, want.Destination, hopText(x))
		default:
			there = true
			if why := barred(x.Warnings); why != "" {
				return true, barredError(want.NextHop, why)
			}
		}
	}
	return there, nil
}

func hopText(r *compute.Route) string {
	for _, hop := range []string{r.NextHopInstance, r.NextHopIp, r.NextHopNetwork, r.NextHopGateway, r.NextHopPeering, r.NextHopVpnTunnel, r.NextHopIlb, r.NextHopHub} {
		if hop != "" {
			return tail(hop)
		}
	}
	return "an unknown next hop"
}

// insert makes a route. That its name is taken says nothing of where that route
// leads: it is read back.
func (r *run) insert(ctx context.Context, want vpc.Route, priority int64) error {
	entry := entryFor(r.config, r.api.networkPath(r.config.Network), want, priority)
	var op *compute.Operation
	err := r.call(ctx, func() (err error) {
		op, err = r.api.insert(ctx, entry)
		return err
	})
	if vpc.ClassOf(err) == vpc.Exists {
		return r.verify(ctx, entry, err)
	}
	if err != nil {
		return err
	}
	var warnings []*compute.RouteWarnings
	for _, w := range op.Warnings {
		warnings = append(warnings, &compute.RouteWarnings{Code: w.Code})
	}
	return r.judge(want.NextHop, warnings)
}

// verify reads back the route whose name was taken.
func (r *run) verify(ctx context.Context, want *compute.Route, taken error) error {
	found, err := r.api.route(ctx, want.Name)
	switch {
	case vpc.ClassOf(err) == vpc.NotFound:
		return vpc.Errorf(vpc.InProgress, "route %s is being made or deleted: %w", want.Name, taken)
	case err != nil:
		return err
	case found.DestRange != want.DestRange || hopOfRoute(found) != hopOfRoute(want) || tail(found.Network) != want.Network || found.Description != want.Description || len(found.Tags) > 0:
		return vpc.Errorf(vpc.Exists, "the name %s is another route's, which leads %s to %q in %s: delete it", found.Name, found.DestRange, hopText(found), tail(found.Network))
	}
	return r.judge(hopOfRoute(found), found.Warnings)
}

// judge is the answer to a route that was made: an error if packets do not pass
// the machine it leads to.
func (r *run) judge(hop vpc.NextHop, warnings []*compute.RouteWarnings) error {
	why := barred(warnings)
	if why == "" {
		return nil
	}
	r.bar(hop, why)
	return barredError(hop, why)
}

func barredError(hop vpc.NextHop, why string) error {
	return vpc.Errorf(vpc.Invalid, "the route is made, but of %s %s", hop, why)
}

// remove deletes a route. A caller that made one and has not listed it since
// knows no name: the one that we give it is deleted, if it carries our mark.
func (r *run) remove(ctx context.Context, route vpc.Route) error {
	if route.ID != "" {
		return r.delete(ctx, route.ID)
	}
	name := nameOf(r.config.Owner, r.config.Network, route.Destination, route.NextHop)
	found, err := r.api.route(ctx, name)
	switch {
	case vpc.ClassOf(err) == vpc.NotFound:
		return nil
	case err != nil:
		return err
	case routeOf(r.config.Network, found).Owner != r.config.Owner:
		return vpc.Errorf(vpc.Invalid, "route %s is not this cluster's", name)
	}
	return r.delete(ctx, name)
}

// delete deletes a route by its name; that it is gone already is success.
func (r *run) delete(ctx context.Context, name string) error {
	err := r.call(ctx, func() error {
		_, err := r.api.remove(ctx, name)
		return err
	})
	if err != nil && vpc.ClassOf(err) != vpc.NotFound {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[name] = true
	return nil
}

func (r *run) isGone(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[name]
}

// call makes a call that changes something when its turn has come, unless an
// earlier answer forbids it by then.
func (r *run) call(ctx context.Context, send func() error) error {
	if err := r.api.pace.Wait(ctx); err != nil {
		return classify("wait for its turn", err)
	}
	r.mu.Lock()
	halt := r.halt
	r.mu.Unlock()
	if halt != nil {
		return fmt.Errorf("not tried after %w", halt)
	}
	err := send()
	if stops(err) {
		r.stop(err)
	}
	return err
}

func (r *run) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.halt = err
}

// stops is true for an answer that every further call would get as well.
func stops(err error) bool {
	return err != nil && (slices.Contains([]vpc.Class{vpc.Throttled, vpc.Denied}, vpc.ClassOf(err)) || vpc.IsCancelled(err))
}

// wrap names the change in an error and keeps its class.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	wait, _ := vpc.RetryAfter(err)
	return &vpc.Error{Class: vpc.ClassOf(err), Op: op, RetryAfter: wait, Err: err}
}
