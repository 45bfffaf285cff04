package azure

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// maxRaces is how often one write is prepared anew because somebody else wrote
	// the table between reading and writing.
	maxRaces = 4
	// maxRefused is how many refused writes one Apply makes to find the changes at
	// fault.
	maxRefused = 24
)

// Apply makes the changes of each table in one write of the whole table, guarded
// by the table's etag; tables are written side by side. If another writer came
// in between, the table is read again and the changes are prepared anew. A write
// that is refused for what is in it is made in halves, so that one bad change
// does not stop the others; anything else that fails ends the table's turn.
func (t *routeTables) Apply(ctx context.Context, changes []vpc.Change) []error {
	errs := make([]error, len(changes))
	var order []string
	byTable := map[string][]int{}
	for i, c := range changes {
		if errs[i] = checkChange(c); errs[i] != nil {
			continue
		}
		if byTable[c.Route.Table] == nil {
			order = append(order, c.Route.Table)
		}
		byTable[c.Route.Table] = append(byTable[c.Route.Table], i)
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done(): // then so does every call below
	}
	t.applied.Add(1) // what a Limits reads from here on may be half of it
	defer t.applied.Add(1)
	var tables sync.WaitGroup
	for _, id := range order {
		w := &writer{routeTables: t, changes: changes, errs: errs}
		tables.Go(func() { w.run(ctx, id, byTable[id]) })
	}
	tables.Wait()
	return errs
}

// A writer makes the changes of one table; errs is shared by those of all
// tables, each of which writes its own places in it.
type writer struct {
	*routeTables
	ref     tableRef
	changes []vpc.Change
	errs    []error
	refused int   // writes
	halt    error // why no further write is made
}

func (w *writer) run(ctx context.Context, id string, batch []int) {
	ref, err := w.routeTables.ref(ctx, id)
	if err != nil {
		w.fail(batch, err)
		return
	}
	w.ref = ref
	// What makes room comes first, for a table that has to be written in parts.
	rank := map[vpc.Op]int{vpc.Delete: 0, vpc.Replace: 1, vpc.Create: 2}
	slices.SortStableFunc(batch, func(a, b int) int { return rank[w.changes[a].Op] - rank[w.changes[b].Op] })
	w.write(ctx, batch)
}

// write makes changes, in parts if it must.
func (w *writer) write(ctx context.Context, batch []int) {
	if w.halt != nil {
		w.fail(batch, fmt.Errorf("not tried after %w", w.halt))
		return
	}
	open, err := w.attempt(ctx, batch)
	if err == nil {
		return
	}
	class := vpc.ClassOf(err)
	if class != vpc.Invalid && class != vpc.Quota && class != vpc.Exists {
		w.halt = err
		w.fail(open, err)
		return
	}
	w.refused++
	switch {
	case len(open) == 1:
		w.fail(open, err)
	case w.refused >= maxRefused && class == vpc.Quota:
		w.fail(open, err)
	case w.refused >= maxRefused:
		w.fail(open, vpc.Errorf(vpc.Transient, "not tried alone after a write was refused: %w", err))
	default:
		w.write(ctx, open[:len(open)/2])
		w.write(ctx, open[len(open)/2:])
	}
}

// attempt makes one write. It returns the changes that an error concerns: those
// that the table itself does not decide.
func (w *writer) attempt(ctx context.Context, batch []int) (open []int, err error) {
	for range maxRaces {
		d, err := w.api.table(ctx, w.ref)
		if err != nil {
			return batch, err
		}
		if open = w.edit(d, batch); len(open) == 0 {
			return nil, nil
		}
		switch err := w.api.putTable(ctx, d); {
		case err == nil:
			return nil, nil
		case !isStale(err):
			return w.readBack(ctx, open, err)
		}
	}
	return open, vpc.Errorf(vpc.InProgress, "%s changed %d times while this write was prepared: another program writes it", w.ref, maxRaces)
}

// readBack looks whether a write whose answer says nothing certain took place.
func (w *writer) readBack(ctx context.Context, open []int, err error) ([]int, error) {
	if class := vpc.ClassOf(err); class != vpc.Transient && class != vpc.InProgress || ctx.Err() != nil {
		return open, err
	}
	d, readErr := w.api.table(ctx, w.ref)
	if readErr != nil {
		return open, err
	}
	if open = w.edit(d, open); len(open) == 0 {
		return nil, nil
	}
	return open, err
}

// edit makes the changes in a table's document. It answers those that the table
// decides, and returns those that need it to be written.
func (w *writer) edit(d *document, batch []int) (open []int) {
	for _, i := range batch {
		c := w.changes[i]
		done, err := w.change(d, c)
		if err == nil && done {
			switch d.state {
			case armnetwork.ProvisioningStateUpdating, armnetwork.ProvisioningStateCreating:
				err = refuse(c, vpc.InProgress, "the table shows it, and is still being updated")
			case armnetwork.ProvisioningStateFailed: // a write brings the table back
				done = false
			}
		}
		if w.errs[i] = err; err == nil && !done {
			open = append(open, i)
		}
	}
	return open
}

// change makes one change in a table's document, and tells whether it was made
// already.
func (w *writer) change(d *document, c vpc.Change) (done bool, err error) {
	if c.Op == vpc.Create {
		return w.create(d, c)
	}
	ours := slices.IndexFunc(d.entries, func(e entry) bool {
		return e.route.Destination == c.Route.Destination && w.isOurs(e)
	})
	switch {
	case c.Op == vpc.Delete && (ours < 0 || d.entries[ours].route.NextHop != c.Route.NextHop):
		return true, nil // gone, or another that came after it
	case c.Op == vpc.Delete:
		d.remove(ours)
		return false, nil
	case c.Op != vpc.Replace:
		return false, refuse(c, vpc.Invalid, "unknown operation %q", c.Op)
	case ours < 0 && len(d.at(c.Route.Destination)) > 0:
		return false, w.taken(d, c)
	case ours < 0:
		return false, refuse(c, vpc.NotFound, "the entry to change is gone")
	case d.entries[ours].route.NextHop == c.Route.NextHop:
		return true, nil
	case d.entries[ours].route.NextHop != c.Old.NextHop:
		return false, w.taken(d, c)
	default:
		return false, d.set(ours, c.Route, d.entries[ours].name)
	}
}

func (w *writer) create(d *document, c vpc.Change) (done bool, err error) {
	name := nameOf(w.config.Owner, c.Route.Destination)
	found := d.at(c.Route.Destination)
	switch {
	case slices.ContainsFunc(found, func(i int) bool {
		return w.isOurs(d.entries[i]) && d.entries[i].route.NextHop == c.Route.NextHop
	}):
		return true, nil
	case len(found) > 0:
		return false, w.taken(d, c)
	}
	if i := d.named(name); i >= 0 {
		e := d.entries[i]
		return false, refuse(c, vpc.Exists, "the table has an entry named %s for %s%s: remove it", e.name, e.route.Text, prefixText(e.route))
	}
	if len(d.entries) >= w.config.MaxRoutes {
		return false, refuse(c, vpc.Quota, "the table holds %d routes, its maximum", len(d.entries))
	}
	return false, d.add(c.Route, name)
}

func prefixText(r vpc.Route) string {
	if !r.Destination.IsValid() {
		return ""
	}
	return r.Destination.String()
}

// taken says which entries have the destination of a change.
func (w *writer) taken(d *document, c vpc.Change) error {
	var entries []string
	for _, i := range d.at(c.Route.Destination) {
		e := d.entries[i]
		entries = append(entries, fmt.Sprintf("%q to %s %s", e.name, e.kind, e.route.NextHop))
	}
	return refuse(c, vpc.Exists, "the table has %v for it", entries)
}

// fail answers changes with an error.
func (w *writer) fail(batch []int, err error) {
	hint, _ := vpc.RetryAfter(err)
	for _, i := range batch {
		w.errs[i] = &vpc.Error{Class: vpc.ClassOf(err), Op: describe(w.changes[i]), RetryAfter: hint, Err: err}
	}
}
