package routes

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A write is a change that a plan asked for and that is not done yet.
type write struct {
	vpc.Change
	// wish tells a repeated write from one with a new purpose.
	wish   string
	serial int // its place in the queue
	busy   bool
	over   bool // nobody wants it any more

	attempts int // failures in a row
	retry    time.Time
	readBack bool      // a list is to show first whether it happened
	failed   time.Time // when it last did
	err      error
	class    vpc.Class
	recorded bool // false when err is the ledger's
	stuck    bool // the cloud can never grant it
	// held says which brake keeps it from being tried; empty when none.
	held Reason
}

// replan compares what is wanted with what is there, as far as either has
// changed. After a full list that is everything; after news of one node it is
// the few destinations that the news touches.
func (e *Engine) replan() {
	if !e.allDirty && len(e.dirty) == 0 {
		return
	}
	diff, looked := e.compare(e.roots(), noLimit)
	e.measure(diff.Changes)
	e.takeChanges(diff.Changes, looked)
	e.takeConflicts(diff.Conflicts, looked)
	for d := range looked {
		e.touch(d)
	}
	clear(e.dirty)
	e.allDirty = false
}

// measure tells the size of a plan.
func (e *Engine) measure(changes []vpc.Change) {
	if e.cfg.Meter == nil || len(changes) == 0 {
		return
	}
	sizes := map[vpc.Op]int{}
	for _, c := range changes {
		sizes[c.Op]++
	}
	e.cfg.Meter.Planned(sizes)
}

// compare plans what is inside roots, and returns the destinations that it
// looked at.
func (e *Engine) compare(roots []netip.Prefix, maxDeletes int) (vpc.Diff, map[netip.Prefix]bool) {
	looked := maps.Clone(e.dirty)
	var desired, actual, known []vpc.Route
	for _, root := range roots {
		claims := e.contend(root)
		desired = append(desired, e.desired(root, claims)...)
		for _, c := range claims {
			looked[c.dest] = true
			c.blocked = nil
		}
		for dest, routes := range e.view.entries.within(root) {
			actual = append(actual, routes...)
			looked[dest] = true
		}
		for dest, entries := range e.book.entries.within(root) {
			known = append(known, proofs(entries)...)
			looked[dest] = true
		}
	}
	if e.allDirty {
		actual = append(actual, e.view.odd...)
		looked[netip.Prefix{}] = true // of the odd ones
	}
	return vpc.Plan(desired, actual, e.rules(known, maxDeletes)), looked
}

// roots are the widest destinations of which something has changed: nothing
// outside them is concerned.
func (e *Engine) roots() []netip.Prefix {
	set := map[netip.Prefix]bool{}
	if e.allDirty {
		for dest := range e.claims.all() {
			e.dirty[dest] = true
		}
		for dest := range e.view.entries.all() {
			e.dirty[dest] = true
		}
		for dest := range e.book.entries.all() {
			e.dirty[dest] = true
		}
		for place := range e.writes {
			e.dirty[place.Destination] = true
		}
	}
	for d := range e.dirty {
		set[e.claims.widest(d)] = true
	}
	var roots []netip.Prefix
	for _, root := range slices.SortedFunc(maps.Keys(set), netip.Prefix.Compare) {
		// A root inside another one would be planned twice.
		if len(roots) == 0 || !contains(roots[len(roots)-1], root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// noLimit lifts the brake of a plan. While the engine runs, its own brake counts
// over time, which a plan cannot.
const noLimit = -1

func (e *Engine) rules(known []vpc.Route, maxDeletes int) vpc.Rules {
	rules := vpc.Rules{
		Owner:      e.cfg.Owner,
		Ranges:     e.cfg.Ranges,
		Tables:     e.tables,
		Ledger:     known,
		MaxDeletes: maxDeletes,
		Room:       map[string]int{},
	}
	for _, table := range e.tables {
		if room, limited := e.room(table); limited {
			rules.Room[table] = room
		}
	}
	return rules
}

// takeChanges replaces the waiting writes that was looked at by those of a new plan. A
// write that is still wanted keeps its history of failures.
func (e *Engine) takeChanges(changes []vpc.Change, looked map[netip.Prefix]bool) {
	planned := map[Place]bool{}
	for _, c := range changes {
		place := placeOf(c.Route)
		if planned[place] {
			continue // its turn comes when the first is done, and planned anew
		}
		planned[place] = true
		e.serial++
		w := e.writes[place]
		switch {
		case w != nil && w.busy:
		case w != nil && w.Op == c.Op && w.Route.NextHop == c.Route.NextHop && w.wish == e.wish(c):
			w.Change, w.serial, e.resort = c, e.serial, true
		default:
			if w != nil {
				w.over = true
			}
			w = &write{Change: c, wish: e.wish(c), serial: e.serial}
			e.writes[place] = w
			e.queue = append(e.queue, w)
		}
	}
	for dest := range looked {
		for place, w := range e.writesAt(dest) {
			if !planned[place] && !w.busy {
				w.over = true
				delete(e.writes, place)
			}
		}
	}
}

// wish names what a change is for.
func (e *Engine) wish(c vpc.Change) string {
	if c.Op != vpc.Delete {
		for _, claim := range e.claims.get(c.Route.Destination) {
			if claim.holds() {
				return claim.wish()
			}
		}
	}
	return "nobody"
}

// takeConflicts replaces the known conflicts that was looked at by those of a new plan
// and tells what came and what went.
func (e *Engine) takeConflicts(found []vpc.Conflict, looked map[netip.Prefix]bool) {
	current := map[string]bool{}
	for _, c := range found {
		if c.Route.Table == "" {
			continue // refused for a reason that the claim's own state tells
		}
		if c.Node == "" && e.undecided(c.Route.Destination) {
			continue // it will be told with the node that it costs its route
		}
		e.block(c)
		current[c.Reason] = true
		if _, known := e.reports.conflicts[c.Reason]; !known {
			e.reports.conflicts[c.Reason] = c
			e.observe(Event{Kind: ConflictFound, Node: c.Node, Table: c.Route.Table, Destination: c.Route.Destination, Message: c.Reason})
		}
	}
	for reason, c := range e.reports.conflicts {
		if !current[reason] && looked[c.Route.Destination] {
			delete(e.reports.conflicts, reason)
			e.observe(Event{Kind: ConflictSolved, Node: c.Node, Table: c.Route.Table, Destination: c.Route.Destination, Message: "no longer: " + reason})
		}
	}
}

// undecided is true while a claim on a destination waits for the cloud to name its next hop for the first time.
func (e *Engine) undecided(dest netip.Prefix) bool {
	return slices.ContainsFunc(e.claims.get(dest), func(c *claim) bool { return !c.hop().asked })
}

// block notes on a node's claim what is in its way.
func (e *Engine) block(conflict vpc.Conflict) {
	for _, c := range e.claims.get(conflict.Route.Destination) {
		if c.node.Name == conflict.Node {
			if c.blocked == nil {
				c.blocked = map[string]string{}
			}
			c.blocked[conflict.Route.Table] = conflict.Reason
		}
	}
}

func (e *Engine) touch(d netip.Prefix) { e.touched[d] = true }

// sortQueue drops what is over and puts the rest in the plans' order.
func (e *Engine) sortQueue() {
	e.queue = slices.DeleteFunc(e.queue, func(w *write) bool { return w.over })
	if e.resort {
		slices.SortFunc(e.queue, func(a, b *write) int { return cmp.Compare(a.serial, b.serial) })
		e.resort = false
	}
}
