package routes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Cleaning is what Cleanup did.
type Cleaning struct {
	// Deleted is the number of our routes that are gone.
	Deleted int
	// Left are our routes that could not be deleted, with why.
	Left []Left
	// Foreign are entries inside the cluster CIDRs that are not ours and were
	// not touched.
	Foreign []vpc.Conflict
	// Forgotten is the number of ledger entries removed.
	Forgotten int
}

// A Left is a route that Cleanup could not delete.
type Left struct {
	Route vpc.Route
	Err   error
}

// patience is how many rounds in a row without any success end a cleanup.
const patience = 5

// Cleanup deletes every route that is provably ours from every managed table,
// and then what the ledger says of them. No controller may be at work on the
// table. Run again, it does nothing. An error means that it could not look;
// what it could not delete is in the Cleaning.
func Cleanup(ctx context.Context, cfg Config) (Cleaning, error) {
	cfg.Observer = silent{}
	e, err := New(cfg)
	if err != nil {
		return Cleaning{}, err
	}
	e.ctx = ctx
	var done Cleaning
	for fails := 0; ; {
		if err := e.look(ctx, nil); err != nil {
			return done, err
		}
		diff := vpc.Plan(nil, e.everything(), e.rules(e.proofs(), noLimit))
		done.Foreign = diff.Conflicts
		if len(diff.Changes) == 0 {
			break
		}
		var deleted int
		deleted, done.Left = e.deleteAll(ctx, diff.Changes)
		done.Deleted += deleted
		if len(done.Left) == 0 {
			continue // look once more: somebody may be at work
		}
		if fails++; deleted > 0 {
			fails = 0
		}
		if fails >= patience || !worthTrying(done.Left) {
			return done, nil
		}
		if err := pause(ctx, backoff(fails)); err != nil {
			return done, err
		}
	}
	done.Left = nil
	forgotten, err := e.forgetAll(ctx)
	done.Forgotten = forgotten
	return done, err
}

// everything is all that the tables hold.
func (e *Engine) everything() []vpc.Route {
	found := slices.Clone(e.view.odd)
	for _, routes := range e.view.entries.all() {
		found = append(found, routes...)
	}
	return found
}

func (e *Engine) proofs() []vpc.Route {
	var known []vpc.Route
	for _, entries := range e.book.entries.all() {
		known = append(known, proofs(entries)...)
	}
	return known
}

// deleteAll makes deletions at the rate that the cloud bears.
func (e *Engine) deleteAll(ctx context.Context, changes []vpc.Change) (deleted int, left []Left) {
	for chunk := range slices.Chunk(changes, e.batch()) {
		if err := pause(ctx, time.Until(e.limiter.next(time.Now()))); err != nil {
			for _, c := range chunk {
				left = append(left, Left{c.Route, err})
			}
			continue
		}
		e.limiter.take(time.Now(), 1)
		errs := e.cfg.Table.Apply(ctx, chunk)
		for i, c := range chunk {
			err := errs[i]
			switch hint, _ := vpc.RetryAfter(err); {
			case err == nil:
				deleted++
				e.limiter.succeeded(time.Now())
				e.view.apply(c, time.Now())
				continue
			case vpc.ClassOf(err) == vpc.Throttled:
				e.limiter.throttled(time.Now(), hint)
			}
			left = append(left, Left{c.Route, err})
		}
	}
	return deleted, left
}

// worthTrying is true when another try can help with any of what is left.
func worthTrying(left []Left) bool {
	return slices.ContainsFunc(left, func(l Left) bool {
		class := vpc.ClassOf(l.Err)
		return class != vpc.Denied && class != vpc.Invalid
	})
}

// forgetAll empties the ledger of what concerns the managed tables.
func (e *Engine) forgetAll(ctx context.Context) (int, error) {
	var entries []Entry
	for _, found := range e.book.entries.all() {
		for _, entry := range found {
			if slices.Contains(e.tables, entry.Table) {
				entries = append(entries, entry)
			}
		}
	}
	if len(entries) == 0 {
		return 0, nil
	}
	forgotten := 0
	var failure error
	for _, err := range e.cfg.Ledger.Forget(ctx, entries) {
		if err == nil {
			forgotten++
		} else {
			failure = fmt.Errorf("the routes are gone, but the ledger still names %d of %d: %w", len(entries)-forgotten, len(entries), err)
		}
	}
	return forgotten, failure
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
