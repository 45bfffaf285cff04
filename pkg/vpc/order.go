package vpc

import (
	"cmp"
	"slices"
	"strings"
)

// The brake on deletions that Rules.MaxDeletes 0 stands for.
const (
	defaultDeleteShare = 20 // per cent of our routes
	leastMaxDeletes    = 3
)

// diff turns what was planned into the answer: braked and in order.
func (p *planner) diff() Diff {
	slices.SortFunc(p.writes, compareChanges)
	deletes, held := p.brake()
	slices.SortFunc(p.conflicts, func(a, b Conflict) int {
		return cmp.Or(compareRoutes(a.Route, b.Route), strings.Compare(a.Reason, b.Reason))
	})
	return Diff{Changes: p.order(deletes), Conflicts: p.conflicts, Held: held}
}

// compareChanges puts replaces before creates, because a wrong route does more
// harm than a missing one.
func compareChanges(a, b Change) int {
	return cmp.Or(
		compareBools(a.Op != Replace, b.Op != Replace),
		compareRoutes(a.Route, b.Route),
	)
}

// brake splits the deletions into those allowed and those held back. When it
// bites, it lets through first what other changes wait for and what can hurt
// nobody: blackholes, and entries that stand beside a wanted one.
func (p *planner) brake() (allowed, held []Change) {
	needed := map[port]bool{}
	for _, c := range p.writes {
		needed[needs(c)] = true
	}
	harmful := func(c Change) bool {
		_, duplicate := p.wanted[c.Route.Destination]
		return !duplicate && !c.Route.Blackhole && !needed[frees(c)]
	}
	slices.SortFunc(p.deletes, func(a, b Change) int {
		return cmp.Or(compareBools(harmful(a), harmful(b)), compareChanges(a, b))
	})
	limit := min(p.maxDeletes(), len(p.deletes))
	allowed, held = p.deletes[:limit:limit], p.deletes[limit:]
	slices.SortFunc(allowed, compareChanges)
	slices.SortFunc(held, compareChanges)
	return allowed, held
}

func (p *planner) maxDeletes() int {
	switch limit := p.rules.MaxDeletes; {
	case limit < 0:
		return len(p.deletes)
	case limit > 0:
		return limit
	}
	ours := 0
	for _, routes := range p.ours {
		ours += len(routes)
	}
	return max(ours*defaultDeleteShare/100, leastMaxDeletes)
}

// A port is a next hop in one table: in a table that takes one destination per
// next hop, what a create needs and a delete frees.
type port struct {
	table string
	hop   NextHop
}

func needs(c Change) port {
	if c.Op == Delete {
		return port{}
	}
	return port{c.Route.Table, c.Route.NextHop}
}

func frees(c Change) port {
	switch c.Op {
	case Delete:
		return port{c.Route.Table, c.Route.NextHop}
	case Replace:
		return port{c.Old.Table, c.Old.NextHop}
	default:
		return port{}
	}
}

// order merges writes and deletes. Replaces and creates come first, since they
// bring packets through, and deletes last; but the deletes of a table that has
// no room for its creates precede them, and a change that frees a next hop
// precedes the one that needs it. That takes no route away too early: a delete
// of the plan only ever removes what nobody wants, or a second entry beside one
// that stays. Replaces in a ring (two nodes swapped ranges) have no such order;
// where the cloud minds, its table has to see them together.
func (p *planner) order(deletes []Change) []Change {
	var early, late []Change
	crowded := p.crowded()
	for _, c := range deletes {
		if crowded[c.Route.Table] {
			early = append(early, c)
		} else {
			late = append(late, c)
		}
	}
	changes := slices.Concat(early, p.writes, late)
	freeing := map[port][]int{}
	for i, c := range changes {
		freeing[frees(c)] = append(freeing[frees(c)], i)
	}
	delete(freeing, port{})
	done := make([]bool, len(changes))
	var ordered []Change
	var visit func(i int)
	visit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for _, j := range freeing[needs(changes[i])] {
			visit(j)
		}
		ordered = append(ordered, changes[i])
	}
	for i := range changes {
		visit(i)
	}
	return ordered
}

// crowded holds the tables that have not room enough for their creates.
func (p *planner) crowded() map[string]bool {
	creates := map[string]int{}
	for _, c := range p.writes {
		if c.Op == Create {
			creates[c.Route.Table]++
		}
	}
	crowded := map[string]bool{}
	for table, n := range creates {
		room, limited := p.rules.Room[table]
		crowded[table] = limited && n > room
	}
	return crowded
}
