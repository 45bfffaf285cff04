package routes

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// listGap is the least time between two full lists; many errors at once are
	// then read back by one list.
	listGap = 10 * time.Second
	// tableWarning is the share of a table, in per cent, that is worth telling.
	tableWarning = 80
)

// listing is when the tables were listed and when they will be.
type listing struct {
	due     time.Time
	busy    bool
	done    bool      // once at least
	started time.Time // of the last list, good or bad
	seen    time.Time // start of the last good list: what was written before it shows
	failed  int       // in a row
	err     error
	resting time.Time // no list before this, after one that failed
}

// want asks for a list at a time, or as soon after as listGap allows.
func (l *listing) want(at time.Time) {
	if l.done {
		at = latest(at, l.started.Add(listGap), l.resting)
	}
	if at.Before(l.due) {
		l.due = at
	}
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// needList has the tables listed at a time, or soon after.
func (e *Engine) needList(at time.Time) {
	e.listing.want(at)
	if !e.listing.busy {
		e.wake(e.listing.due)
	}
}

// startList lists the tables when that is due. A list that failed is the only
// thing that its own backoff delays.
func (e *Engine) startList(now time.Time) {
	l := &e.listing
	if l.busy || !e.loaded {
		return
	}
	at := latest(l.due, e.limiter.next(now))
	if now.Before(at) {
		e.wake(at)
		return
	}
	e.limiter.take(now, 1)
	l.busy, l.started = true, now
	e.do(func() func() {
		limits, routes, err := e.read(e.ctx)
		return func() { e.listed(now, limits, routes, err, time.Now()) }
	})
}

// read lists the tables and their limits.
func (e *Engine) read(ctx context.Context) (vpc.Limits, []vpc.Route, error) {
	limits, err := e.cfg.Table.Limits(ctx)
	if err != nil {
		return limits, nil, fmt.Errorf("read the limits of the route tables: %w", err)
	}
	routes, err := e.cfg.Table.List(ctx)
	if err != nil {
		return limits, nil, fmt.Errorf("list the routes: %w", err)
	}
	return limits, routes, nil
}

// listed takes a full list over as the truth.
func (e *Engine) listed(started time.Time, limits vpc.Limits, routes []vpc.Route, err error, now time.Time) {
	l := &e.listing
	l.busy = false
	if err != nil {
		e.listFailed(err, now)
		return
	}
	e.limiter.succeeded(now)
	if l.err != nil {
		e.observe(Event{Kind: ListWorks, Message: "the route tables can be read again"})
	}
	again := l.done
	l.failed, l.err, l.done, l.seen = 0, nil, true, started
	l.due = now.Add(e.cfg.Resync + time.Duration(rand.Int64N(int64(e.cfg.Resync/20)+1)))
	e.takeLimits(limits)
	before := e.view.entries
	masked := e.view.replace(routes, now, e.cfg.Consistency)
	if masked {
		e.needList(now.Add(e.cfg.Consistency))
	}
	if again {
		e.reportDrift(before)
		e.resolveAgain()
	}
	maps.DeleteFunc(e.history, func(_ Place, r *rewrites) bool { return r.old(now) })
	e.allDirty = true
}

func (e *Engine) listFailed(err error, now time.Time) {
	l := &e.listing
	wait := backoff(l.failed)
	switch vpc.ClassOf(err) {
	case vpc.Throttled:
		hint, _ := vpc.RetryAfter(err)
		e.throttled(now, hint, err)
		wait = max(wait, hint)
	case vpc.Denied:
		wait = tryInterval
	}
	if l.failed++; l.failed == 1 || fmt.Sprint(l.err) != fmt.Sprint(err) {
		e.observe(Event{Kind: ListFailed, Message: fmt.Sprintf("no route is deleted until the tables can be read: %v", err)})
	}
	l.err = err
	l.resting = now.Add(wait)
	l.due = l.resting
	e.allDirty = true
}

// takeLimits takes over which tables there are, what they bear, and how full
// they are.
func (e *Engine) takeLimits(limits vpc.Limits) {
	e.limits, e.tables = limits, nil
	for _, t := range limits.Tables {
		e.tables = append(e.tables, t.Table)
		if filling(t) && !e.filling[t.Table] {
			e.observe(Event{Kind: TableFilling, Table: t.Table, Message: fmt.Sprintf(
				"route table %s holds %d of at most %d entries: ask the cloud for a higher quota before it is full", t.Table, t.Used, t.Max)})
		}
		e.filling[t.Table] = filling(t)
	}
	slices.Sort(e.tables)
}

func filling(t vpc.TableLimits) bool { return t.Max > 0 && t.Used*100 >= t.Max*tableWarning }

// room is how many more entries a table takes, and false when that is not known.
func (e *Engine) room(table string) (int, bool) {
	for _, t := range e.limits.Tables {
		if t.Table == table && t.Max > 0 {
			return t.Max - t.Used, true
		}
	}
	return 0, false
}

// used adjusts how full a table is by our own writes.
func (e *Engine) used(table string, n int) {
	for i := range e.limits.Tables {
		if e.limits.Tables[i].Table == table {
			e.limits.Tables[i].Used += n
		}
	}
}

// reportDrift tells which of our routes somebody else changed or removed since
// the list before.
func (e *Engine) reportDrift(before prefixMap[[]vpc.Route]) {
	for dest, claims := range e.claims.all() {
		for _, c := range claims {
			if c.holds() && c.hop().value != "" {
				e.reportLost(c, dest, before.get(dest))
			}
		}
	}
}

func (e *Engine) reportLost(c *claim, dest netip.Prefix, before []vpc.Route) {
	for _, r := range before {
		place := Place{r.Table, dest}
		if r.Owner != e.cfg.Owner && !e.proved(r) {
			continue
		}
		if r.NextHop != c.hop().value || r.Blackhole {
			continue
		}
		if w := e.writes[place]; w != nil && w.busy {
			continue
		}
		now := e.view.at(place)
		if slices.ContainsFunc(now, func(n vpc.Route) bool { return n.NextHop == r.NextHop }) {
			continue // its machine is gone, which nobody did to the route
		}
		found := "is gone"
		if len(now) > 0 {
			found = fmt.Sprintf("leads to %q", now[0].NextHop)
		}
		e.stats.Drift++
		e.observe(Event{Kind: DriftRepaired, Node: c.node.Name, Table: r.Table, Destination: dest, Message: fmt.Sprintf(
			"our route %s to %s %s in table %s, and not by us: putting it back", dest, r.NextHop, found, r.Table)})
	}
}

// proved is true when the ledger says that a found route is ours.
func (e *Engine) proved(r vpc.Route) bool {
	return r.Owner == "" && slices.ContainsFunc(e.book.entries.get(r.Destination), func(entry Entry) bool {
		return entry.Table == r.Table && slices.Contains(entry.hops(), r.NextHop)
	})
}
