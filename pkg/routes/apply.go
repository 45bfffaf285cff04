package routes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A call is one call of Apply and what it is to change.
type call struct {
	writes  []*write
	entries []*Entry // by write: what to record first; nil when nothing
}

// An answer is what became of one change.
type answer struct {
	err error
	// recorded is false when the ledger failed, so the cloud was not asked.
	recorded bool
}

// A port is a next hop in one table. Some tables take one destination per next
// hop, so a change that frees one has to precede the change that needs it.
type port struct {
	table string
	hop   vpc.NextHop
}

// dispatch sends the writes whose time has come, in the order of the plans and
// in calls as large as the cloud takes them.
func (e *Engine) dispatch(now time.Time) {
	e.sortQueue()
	d := dispatcher{Engine: e, now: now, earlier: map[port][]*write{}, calls: map[*write]*call{}}
	for _, w := range e.queue {
		if !d.offer(w) {
			break
		}
	}
	d.flush()
}

type dispatcher struct {
	*Engine
	now     time.Time
	earlier map[port][]*write // unfinished writes, by the port that they free
	calls   map[*write]*call  // of writes that go now
	open    *call
	limit   int  // of deletions
	counted bool // the limit is known
}

// offer sends one write if it may be sent; false means that none may.
func (d *dispatcher) offer(w *write) (goOn bool) {
	needs := port{w.Route.Table, w.Route.NextHop}
	defer d.note(w)
	if w.busy {
		return true
	}
	var with *call
	if w.Op != vpc.Delete {
		for _, blocker := range d.earlier[needs] {
			if with = d.calls[blocker]; with == nil {
				return true // it is under way, or has to wait itself
			}
		}
	}
	if with == nil && !d.canCall() {
		return false
	}
	if d.admit(w) {
		d.add(w, with)
	}
	return true
}

// note remembers which port an unfinished write will free.
func (d *dispatcher) note(w *write) {
	switch w.Op {
	case vpc.Delete:
		d.earlier[port{w.Route.Table, w.Route.NextHop}] = append(d.earlier[port{w.Route.Table, w.Route.NextHop}], w)
	case vpc.Replace:
		d.earlier[port{w.Old.Table, w.Old.NextHop}] = append(d.earlier[port{w.Old.Table, w.Old.NextHop}], w)
	}
}

// canCall is true when a call may be made now, or one is open that takes more.
func (d *dispatcher) canCall() bool {
	if d.open != nil && len(d.open.writes) < d.batch() {
		return true
	}
	d.flush()
	if d.inFlight >= d.cfg.Parallel {
		return false
	}
	if next := d.limiter.next(d.now); next.After(d.now) {
		d.wake(next)
		return false
	}
	return true
}

// batch is how many changes the cloud takes in one call.
func (e *Engine) batch() int { return max(1, e.limits.Batch) }

// add puts a write into a call: the one that it has to go with, else the open
// one.
func (d *dispatcher) add(w *write, with *call) {
	if with == nil {
		if d.open == nil {
			d.open = &call{}
		}
		with = d.open
	}
	w.busy = true
	if w.Op == vpc.Create {
		d.creating[w.Route.Table]++
	}
	d.calls[w] = with
	with.writes = append(with.writes, w)
	with.entries = append(with.entries, d.writeAhead(w))
}

// flush makes the open call. Calls that grew by writes that had to go together
// cost what the cloud will make of them.
func (d *dispatcher) flush() {
	if d.open == nil {
		return
	}
	c := d.open
	d.open = nil
	d.limiter.take(d.now, (len(c.writes)+d.batch()-1)/d.batch())
	d.inFlight++
	d.do(func() func() {
		answers := d.perform(d.ctx, c)
		return func() { d.finish(c, answers, time.Now()) }
	})
}

// writeAhead is the entry that has to be durable before the cloud is asked; nil
// when the ledger holds it already.
func (e *Engine) writeAhead(w *write) *Entry {
	if w.Op == vpc.Delete {
		return nil
	}
	known, found := e.book.find(w.Route.Node, w.Route.Table, w.Route.Destination)
	if !found {
		known = Entry{Node: w.Route.Node, Table: w.Route.Table, Destination: w.Route.Destination}
	}
	wanted := known.pointed(known.UID, w.Route.NextHop)
	if node := e.members[w.Route.Node]; node != nil {
		wanted.UID = node.UID
	}
	if found && wanted.equal(known) {
		return nil
	}
	e.bookBusy[keyOf(wanted)] = true
	return &wanted
}

// perform records and then asks the cloud. It runs on a goroutine of its own
// and touches no state of the engine.
func (e *Engine) perform(ctx context.Context, c *call) []answer {
	answers := make([]answer, len(c.writes))
	for i, err := range e.record(ctx, c.entries) {
		answers[i] = answer{err, err == nil}
	}
	var changes []vpc.Change
	var asked []int
	for i, w := range c.writes {
		if answers[i].recorded {
			changes = append(changes, w.Change)
			asked = append(asked, i)
		}
	}
	if len(changes) == 0 {
		return answers
	}
	errs := e.cfg.Table.Apply(ctx, changes)
	for j, i := range asked {
		if j < len(errs) {
			answers[i].err = errs[j]
		} else {
			answers[i].err = errors.New("the route table gave no answer")
		}
	}
	return answers
}

// record makes entries durable; there is one answer for each, nil ones too.
func (e *Engine) record(ctx context.Context, entries []*Entry) []error {
	var wanted []Entry
	for _, entry := range entries {
		if entry != nil {
			wanted = append(wanted, *entry)
		}
	}
	errs := make([]error, len(entries))
	if len(wanted) == 0 {
		return errs
	}
	answers := e.cfg.Ledger.Record(ctx, wanted)
	next := 0
	for i, entry := range entries {
		if entry != nil {
			errs[i] = answers[next]
			next++
		}
	}
	return errs
}

// finish takes the answers of one call.
func (e *Engine) finish(c *call, answers []answer, now time.Time) {
	e.inFlight--
	for i, w := range c.writes {
		w.busy = false
		if w.Op == vpc.Create {
			e.creating[w.Route.Table]--
		}
		if entry := c.entries[i]; entry != nil {
			delete(e.bookBusy, keyOf(*entry))
			if answers[i].recorded {
				e.book.put(*entry)
			}
		}
		switch a := answers[i]; {
		case a.err == nil:
			e.succeeded(w, now)
		case !a.recorded:
			w.note(a, now)
			w.backOff(now)
		default:
			e.failed(w, a, now)
		}
		e.dirty[w.Route.Destination] = true
	}
}

func (e *Engine) succeeded(w *write, now time.Time) {
	place := placeOf(w.Route)
	e.limiter.succeeded(now)
	e.denied.open()
	switch w.Op {
	case vpc.Create:
		e.gate(place.Table).open()
		e.used(place.Table, 1)
	case vpc.Delete:
		// It made room, so that a create has a chance at once.
		e.gate(place.Table).open()
		e.used(place.Table, -1)
	}
	e.view.apply(w.Change, now)
	delete(e.uncertain, place)
	if e.history[place] == nil {
		e.history[place] = &rewrites{}
	}
	e.history[place].wrote(now, w.wish)
	w.over = true
	delete(e.writes, place)
	if w.Op == vpc.Delete {
		delete(e.lastChange, place)
	} else {
		e.lastChange[place] = now
	}
}

// failed decides by an error's class alone what happens next.
func (e *Engine) failed(w *write, a answer, now time.Time) {
	place := placeOf(w.Route)
	w.note(a, now)
	switch w.class {
	case vpc.Throttled:
		hint, _ := vpc.RetryAfter(a.err)
		e.throttled(now, hint, a.err)
	case vpc.Quota:
		e.gate(place.Table).close(now)
	case vpc.Denied:
		e.denied.close(now)
	case vpc.Invalid:
		w.stuck = true
	case vpc.NotFound:
		e.askAgain(w.Route.Node)
		e.readBack(w, now)
	default:
		// Transient, Exists, InProgress: it may have happened.
		e.uncertain[place] = now
		e.readBack(w, now)
	}
}

func (w *write) note(a answer, now time.Time) {
	w.err, w.class, w.recorded, w.failed = a.err, vpc.ClassOf(a.err), a.recorded, now
	w.readBack = false
}

func (w *write) backOff(now time.Time) {
	w.retry = now.Add(backoff(w.attempts))
	w.attempts++
}

// readBack has the tables listed before a write is tried again.
func (e *Engine) readBack(w *write, now time.Time) {
	w.backOff(now)
	w.readBack = true
	e.needList(w.retry)
}

// throttled slows the whole table down.
func (e *Engine) throttled(now time.Time, hint time.Duration, err error) {
	if now.After(e.limiter.paused) {
		e.observe(Event{Kind: Throttling, Message: fmt.Sprintf("the cloud asks for fewer calls, so all of them slow down: %v", err)})
	}
	e.limiter.throttled(now, hint)
}

// askAgain has a node's next hops asked for again.
func (e *Engine) askAgain(node string) {
	if m := e.members[node]; m != nil {
		for _, h := range m.hops {
			h.due = true
		}
		e.queueResolving(m)
	}
}

// admit says whether a write may be tried now, and notes on it which brake
// keeps it back.
func (d *dispatcher) admit(w *write) bool {
	reason := d.obstacle(w)
	if w.held != reason {
		w.held = reason
		d.touch(w.Route.Destination)
		d.tellHeld(w)
	}
	return reason == ""
}

// obstacle names what keeps a write from being tried now; "" when nothing does.
// Gates come last, since passing one is the try of this minute.
func (d *dispatcher) obstacle(w *write) Reason {
	place := placeOf(w.Route)
	switch until, spent := d.history[place].spent(d.now, w.wish); {
	case w.stuck:
		return RequestRefused
	case d.now.Before(w.retry):
		d.wake(w.retry)
		return CloudFailing
	case w.readBack && !d.listing.seen.After(w.failed):
		d.needList(w.retry)
		return CloudFailing
	case spent:
		d.wake(until)
		return RouteContended
	}
	if w.Op == vpc.Delete {
		return d.deletionObstacle(w)
	}
	if d.bookBusy[entryKey{w.Route.Node, place}] {
		return LedgerFailing
	}
	if entry, _ := d.book.find(w.Route.Node, place.Table, place.Destination); len(entry.Previous) >= maxPrevious {
		d.needList(d.now)
		return LedgerFailing
	}
	if w.Op == vpc.Create && !d.hasRoom(place.Table) {
		return TableFull
	}
	return d.denial()
}

func (d *dispatcher) denial() Reason {
	if d.denied.pass(d.now) {
		return ""
	}
	d.wake(d.denied.next)
	return AccessDenied
}

// gate is the one that closes when a table is full.
func (e *Engine) gate(table string) *gate {
	if e.full[table] == nil {
		e.full[table] = &gate{}
	}
	return e.full[table]
}

// hasRoom is true when a table takes another entry, for all that is known, or
// when it is time to try.
func (d *dispatcher) hasRoom(table string) bool {
	g := d.gate(table)
	if room, limited := d.room(table); limited && room <= d.creating[table] {
		g.closed = true
	}
	if !g.pass(d.now) {
		d.wake(g.next)
		return false
	}
	return true
}

// deletionObstacle applies the brakes on deletions. A route that leads nowhere
// carries no packets, so that its end is not counted.
func (d *dispatcher) deletionObstacle(w *write) Reason {
	if len(d.members) == 0 || d.listing.err != nil {
		return DeletionHeld
	}
	counted := !w.Route.Blackhole
	if counted && !d.mayDelete() {
		d.wake(d.deletions.freed())
		return DeletionHeld
	}
	if reason := d.denial(); reason != "" {
		return reason
	}
	if counted {
		d.deletions.took(d.now)
	}
	return ""
}

func (d *dispatcher) mayDelete() bool {
	if !d.counted {
		d.counted, d.limit = true, d.maxDeletes()
	}
	return d.limit < 0 || d.deletions.room(d.now, d.limit) > 0
}

// maxDeletes is how many deletions one window takes; negative for any number.
func (e *Engine) maxDeletes() int {
	if e.cfg.MaxDeletes != 0 {
		return e.cfg.MaxDeletes
	}
	ours, ofOneNode := len(e.deletions.times), 1
	for _, routes := range e.view.entries.all() {
		for _, r := range routes {
			if r.Owner == e.cfg.Owner || e.proved(r) {
				ours++
			}
		}
	}
	for _, m := range e.members {
		ofOneNode = max(ofOneNode, len(m.claims)*len(e.tables))
	}
	return max(ours*deleteShare/100, leastDeletes*ofOneNode)
}

// The brake on deletions when the configuration names none.
const (
	deleteShare  = 20 // per cent of our routes
	leastDeletes = 3  // nodes' worth of routes
)

// tellHeld reports a brake once.
func (d *dispatcher) tellHeld(w *write) {
	event := Event{Node: w.Route.Node, Table: w.Route.Table, Destination: w.Route.Destination}
	switch w.held {
	case RouteContended:
		event.Kind = RangeRewritten
		event.Message = fmt.Sprintf("%s in table %s was written %d times in %s and changed back each time: find the other writer; next try in at most that time",
			w.Route.Destination, w.Route.Table, rewriteLimit, rewriteWindow)
	case DeletionHeld:
		if d.reports.braked {
			return
		}
		d.reports.braked = true
		event = Event{Kind: DeletionsHeld, Message: d.heldBecause()}
	default:
		return
	}
	d.observe(event)
}

func (d *dispatcher) heldBecause() string {
	switch {
	case len(d.members) == 0:
		return "the Node list is empty, so no route is deleted: if the cluster is gone, run the cleanup command"
	case d.listing.err != nil:
		return fmt.Sprintf("the route tables cannot be read, so no route is deleted: %v", d.listing.err)
	}
	return fmt.Sprintf("%d routes were deleted in %s and more are unwanted: the rest waits; raise the limit if this many nodes really went",
		len(d.deletions.times), d.deletions.window)
}

// waitingDeletes is true while some deletion is held back.
func (e *Engine) waitingDeletes() bool {
	return slices.ContainsFunc(e.queue, func(w *write) bool { return !w.over && w.held == DeletionHeld })
}
