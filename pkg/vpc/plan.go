package vpc

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Rules are what a plan has to respect.
type Rules struct {
	// Owner is this installation's mark (its cluster id).
	Owner string
	// Ranges are the cluster CIDRs. A desired route outside them is refused, and
	// only a foreign route inside them is worth reporting.
	Ranges []netip.Prefix
	// Tables are the ids of the managed tables; every desired route is wanted in
	// each of them. Entries of other tables are neither judged nor written to.
	Tables []string
	// Ledger holds the routes that the ledger proves ours, on clouds that cannot
	// mark routes. A found route is ours when its mark is Owner, or when it has
	// no mark and the ledger has its table, destination and next hop. Of a
	// blackhole whose next hop the cloud no longer names, table and destination
	// are enough.
	Ledger []Route
	// MaxDeletes is the brake: a plan deletes at most this many routes; 0 means
	// the default of 20 % of ours, and at least 3. A negative value lifts it. A
	// Replace is not a deletion.
	MaxDeletes int
	// Room is how many more entries each table takes, by table id; a table that
	// is not in it has room enough. Where the creates of a plan exceed it, that
	// table's deletes come first.
	Room map[string]int
}

// A Conflict is a desired or foreign route that nothing can be done about.
type Conflict struct {
	// Route is the foreign entry, or the desired route that was refused.
	Route Route
	// Node is the node that has no working route because of it; empty when none.
	Node string
	// Reason says in words what is in the way and what to do.
	Reason string
}

// A Diff is the difference between the desired and the actual routes.
type Diff struct {
	// Changes are to be applied, in this order: replaces and creates before
	// deletes, except where a create needs the room of a delete.
	Changes []Change
	// Conflicts are to be reported; nothing is written for them.
	Conflicts []Conflict
	// Held are deletions that the brake keeps back.
	Held []Change
}

// Plan says what to change in the managed tables so that they hold the desired
// routes. It is pure: the same sets give the same Diff, whatever their order.
//
// A desired route needs a Destination, a NextHop and, for messages, a Node; its
// Table and Owner are filled in by the plan. One without a NextHop means that
// the node's next hop is not known now: nothing is made for it and what is
// there stays. The same holds for every other refused one (invalid, outside
// Ranges, contested), so that a broken input never costs a working route.
//
// Claims on one destination, or on overlapping ones, with different next hops
// are for the caller to resolve. As long as it has not, the one that a table
// holds already stands; of nested ones held nowhere the narrower stands; of
// equal ones held nowhere, none.
//
// Ours is what its mark or the ledger proves ours, and nothing else: a foreign
// entry is never written to. One for exactly a desired destination keeps that
// route from being made, unless it leads to the right next hop; then it is
// left to do its work. Foreign entries inside Ranges are conflicts; wider ones,
// such as a default route, are not, since the longer prefix wins.
//
// A route with a wrong next hop, or whose packets the cloud drops for a reason
// that a Replace removes, is replaced, never deleted and created, and a
// second entry of ours for a destination is deleted after its first is right,
// so no step leaves a desired destination without the entry that it had.
func Plan(desired, actual []Route, rules Rules) Diff {
	p := &planner{
		rules:   rules,
		tables:  slices.Compact(slices.Sorted(slices.Values(rules.Tables))),
		ours:    map[place][]Route{},
		foreign: map[place][]Route{},
	}
	p.sort(actual)
	p.wanted, p.refused = p.admit(desired)
	for _, table := range p.tables {
		for _, want := range p.wanted {
			want.Table = table
			p.compare(want)
		}
	}
	p.clean()
	p.report()
	return p.diff()
}

// A place is one destination in one table.
type place struct {
	table       string
	destination netip.Prefix
}

func placeOf(r Route) place { return place{r.Table, r.Destination} }

type planner struct {
	rules         Rules
	tables        []string
	ours, foreign map[place][]Route
	odd           []Route // found, with a destination that cannot be compared

	wanted  map[netip.Prefix]Route
	refused map[netip.Prefix]bool // claimed, and granted to nobody

	writes, deletes []Change
	conflicts       []Conflict
}

// sort puts each found entry of a managed table where it belongs. An entry
// listed twice, as paging can do, counts once: as a duplicate it would be
// deleted, and the route with it.
func (p *planner) sort(actual []Route) {
	type identity struct {
		place
		hop      NextHop
		id, text string
	}
	seen := map[identity]bool{}
	ledger := newLedger(p.rules.Ledger)
	for _, r := range slices.SortedFunc(slices.Values(actual), compareRoutes) {
		id := identity{placeOf(r), r.NextHop, r.ID, r.Text}
		if seen[id] || !slices.Contains(p.tables, r.Table) {
			continue
		}
		seen[id] = true
		switch at := placeOf(r); {
		case !canonical(r.Destination):
			p.odd = append(p.odd, r)
		case p.marked(r) || ledger.proves(r):
			p.ours[at] = append(p.ours[at], r)
		default:
			p.foreign[at] = append(p.foreign[at], r)
		}
	}
}

func (p *planner) marked(r Route) bool { return r.Owner != "" && r.Owner == p.rules.Owner }

// A ledger is the set of the routes that we made.
type ledger struct {
	routes map[Route]bool
	places map[place]bool
}

func newLedger(routes []Route) ledger {
	l := ledger{map[Route]bool{}, map[place]bool{}}
	for _, r := range routes {
		l.routes[Route{Table: r.Table, Destination: r.Destination, NextHop: r.NextHop}] = true
		l.places[placeOf(r)] = true
	}
	return l
}

func (l ledger) proves(r Route) bool {
	if r.Owner != "" {
		return false
	}
	if r.Blackhole && r.NextHop == "" {
		return l.places[placeOf(r)]
	}
	return l.routes[Route{Table: r.Table, Destination: r.Destination, NextHop: r.NextHop}]
}

// compare plans what one table needs for one wanted route.
func (p *planner) compare(want Route) {
	ours, foreign := p.ours[placeOf(want)], p.foreign[placeOf(want)]
	switch right := bestIndex(ours, want.NextHop); {
	case right >= 0:
		if reason := ours[right].Dropped; reason != "" {
			p.writes = append(p.writes, Change{Op: Replace, Route: want, Old: ours[right], Reason: fmt.Sprintf(
				"%s of node %s leads to the right next hop, but its packets are dropped: %s", want.Destination, want.Node, reason)})
		}
		if ours[right].Blackhole {
			p.conflict(want, want.Node, "%s leads to the right next hop %s, but the cloud says that it is gone: check the machine of node %s", want.Destination, want.NextHop, want.Node)
		}
		p.dropDuplicates(want, slices.Delete(slices.Clone(ours), right, right+1))
	case leadsTo(foreign, want.NextHop):
		p.dropDuplicates(want, ours)
	case len(ours) > 0:
		p.writes = append(p.writes, Change{Op: Replace, Route: want, Old: ours[0], Reason: fmt.Sprintf(
			"%s of node %s %s", want.Destination, want.Node, leads(ours[0]))})
		p.dropDuplicates(want, ours[1:])
	case len(foreign) == 0:
		p.writes = append(p.writes, Change{Op: Create, Route: want, Reason: fmt.Sprintf("node %s has %s and the table has no route to it", want.Node, want.Destination)})
	}
}

// bestIndex finds the entry to keep of those that lead to a next hop: a live one
// if there is, else the first; -1 when there is none.
func bestIndex(routes []Route, hop NextHop) int {
	live := slices.IndexFunc(routes, func(r Route) bool { return r.NextHop == hop && !r.Blackhole })
	if live >= 0 {
		return live
	}
	return slices.IndexFunc(routes, func(r Route) bool { return r.NextHop == hop })
}

// leadsTo is true when one of the routes does what a wanted one would do.
func leadsTo(routes []Route, hop NextHop) bool {
	return slices.ContainsFunc(routes, func(r Route) bool { return r.NextHop == hop && !r.Blackhole })
}

// leads says in words where a route sends packets.
func leads(r Route) string {
	hop := cmp.Or(string(r.NextHop), "an unnamed next hop")
	if r.Blackhole {
		return fmt.Sprintf("leads nowhere (%s is gone)", hop)
	}
	return "leads to " + hop
}

func (p *planner) dropDuplicates(want Route, extra []Route) {
	for _, r := range extra {
		p.deletes = append(p.deletes, Change{Op: Delete, Route: r, Reason: fmt.Sprintf(
			"%s of node %s has another entry; this one %s and takes packets from it", want.Destination, want.Node, leads(r))})
	}
}

// clean plans the deletion of ours for destinations that nobody claims.
func (p *planner) clean() {
	for at, routes := range p.ours {
		_, wanted := p.wanted[at.destination]
		if wanted || p.refused[at.destination] {
			continue
		}
		for _, r := range routes {
			p.deletes = append(p.deletes, Change{Op: Delete, Route: r, Reason: fmt.Sprintf("no node has %s any more, and it %s", r.Destination, leads(r))})
		}
	}
}

// report names the foreign entries that matter.
func (p *planner) report() {
	for _, routes := range p.foreign {
		for _, r := range routes {
			p.reportForeign(r)
		}
	}
	for _, r := range p.odd {
		name := cmp.Or(r.Text, r.Destination.String())
		switch {
		case p.marked(r):
			p.conflict(r, "", "entry %q of %s carries our mark but its destination is not one range, so it is left alone: remove it by hand", name, r.Table)
		case p.inRanges(r.Destination):
			p.conflict(r, "", "entry %q of %s lies inside our range and is not ours: remove it, or give the cluster another range", name, r.Table)
		}
	}
}

func (p *planner) reportForeign(r Route) {
	if !p.inRanges(r.Destination) {
		return
	}
	whose := "is not ours (no mark of ours, not in the ledger)"
	if r.Owner != "" {
		whose = fmt.Sprintf("belongs to another owner (%q)", r.Owner)
	}
	want, wanted := p.wanted[r.Destination]
	switch {
	case wanted && leadsTo([]Route{r}, want.NextHop):
		if r.Owner != "" {
			p.conflict(r, "", "%s in %s leads to the right next hop but %s: make sure that only one controller writes this range", r.Destination, r.Table, whose)
		}
	case wanted && p.served(r.Table, want):
		p.conflict(r, "", "%s in %s has a second entry that %s, %s and takes packets from node %s: remove it", r.Destination, r.Table, leads(r), whose, want.Node)
	case wanted:
		p.conflict(r, want.Node, "%s in %s %s and %s, so node %s gets no route: remove that entry, or give the node another range", r.Destination, r.Table, leads(r), whose, want.Node)
	default:
		p.conflict(r, "", "%s in %s lies inside our range, %s and %s%s: remove it, or keep it out of the cluster CIDRs", r.Destination, r.Table, leads(r), whose, p.covered(r.Destination))
	}
}

// served is true when the wanted route's table has, or gets by this plan, an
// entry that leads to its next hop.
func (p *planner) served(table string, want Route) bool {
	at := place{table, want.Destination}
	return len(p.ours[at]) > 0 || leadsTo(p.foreign[at], want.NextHop)
}

// covered says which node's range a destination lies in, if any.
func (p *planner) covered(d netip.Prefix) string {
	for bits := d.Bits() - 1; bits >= 0; bits-- {
		wider, err := d.Addr().Prefix(bits)
		if want, ok := p.wanted[wider]; err == nil && ok {
			return fmt.Sprintf(", and takes packets from %s of node %s", want.Destination, want.Node)
		}
	}
	return ""
}

func (p *planner) inRanges(d netip.Prefix) bool {
	return slices.ContainsFunc(p.rules.Ranges, func(r netip.Prefix) bool {
		return r.Bits() <= d.Bits() && r.Contains(d.Addr())
	})
}

func (p *planner) conflict(r Route, node, format string, args ...any) {
	p.conflicts = append(p.conflicts, Conflict{Route: r, Node: node, Reason: fmt.Sprintf(format, args...)})
}

// canonical is true for a range that two tables can be compared by: valid, no
// host bits, and not IPv4 dressed as IPv6.
func canonical(p netip.Prefix) bool {
	return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6()
}

func compareRoutes(a, b Route) int {
	return cmp.Or(
		strings.Compare(a.Table, b.Table),
		a.Destination.Compare(b.Destination),
		strings.Compare(a.Text, b.Text),
		cmp.Compare(a.NextHop, b.NextHop),
		strings.Compare(a.ID, b.ID),
		compareBools(a.Blackhole, b.Blackhole),
		strings.Compare(a.Dropped, b.Dropped),
		strings.Compare(a.Owner, b.Owner),
		strings.Compare(a.Node, b.Node),
	)
}

// compareBools puts false first.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
