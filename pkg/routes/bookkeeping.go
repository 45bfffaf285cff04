package routes

import (
	"fmt"
	"slices"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// An entryKey is what an entry is known by.
type entryKey struct {
	node string
	Place
}

func keyOf(e Entry) entryKey { return entryKey{e.Node, Place{e.Table, e.Destination}} }

// keepBook brings the ledger of every destination that was looked at to what
// the tables hold: it forgets what the cloud has forgotten, lets go of next hops
// that the cloud holds no more, and records routes of ours that it lacks.
func (e *Engine) keepBook() {
	for dest := range e.touched {
		if !dest.IsValid() {
			continue
		}
		for _, entry := range e.book.entries.get(dest) {
			e.keepEntry(entry)
		}
		for _, c := range e.claims.get(dest) {
			e.adopt(c)
		}
	}
}

func (e *Engine) keepEntry(entry Entry) {
	place := Place{entry.Table, entry.Destination}
	if e.writes[place] != nil || e.bookBusy[keyOf(entry)] || !slices.Contains(e.tables, entry.Table) {
		return
	}
	wanted := e.wantsEntry(entry)
	switch {
	case !wanted && !e.provesOnly(entry, entry.hops()):
		if e.certain(place) {
			e.changeBook(entry, true)
		}
	case wanted && len(entry.Previous) > 0 && !e.provesOnly(entry, entry.Previous):
		if e.certain(place) {
			entry.Previous = nil
			e.changeBook(entry, false)
		}
	case wanted && e.members[entry.Node].UID != entry.UID:
		entry.UID = e.members[entry.Node].UID
		e.changeBook(entry, false)
	}
}

// wantsEntry is true while the entry's node claims its destination.
func (e *Engine) wantsEntry(entry Entry) bool {
	m := e.members[entry.Node]
	if m == nil {
		return false
	}
	claimed := slices.ContainsFunc(m.claims, func(c *claim) bool { return c.dest == entry.Destination })
	return claimed && m.Exclusion != ExcludedRemove
}

// provesOnly is true when the table still holds a route to one of hops that no
// other entry proves ours.
func (e *Engine) provesOnly(entry Entry, hops []vpc.NextHop) bool {
	for _, r := range e.view.at(Place{entry.Table, entry.Destination}) {
		if r.Owner != "" && r.Owner != e.cfg.Owner {
			continue
		}
		if r.NextHop == "" && r.Blackhole {
			return true
		}
		if slices.Contains(hops, r.NextHop) && !e.provedByOther(entry, r) {
			return true
		}
	}
	return false
}

func (e *Engine) provedByOther(entry Entry, r vpc.Route) bool {
	return slices.ContainsFunc(e.book.entries.get(entry.Destination), func(o Entry) bool {
		return o.Table == entry.Table && o.Node != entry.Node && o.NextHop == r.NextHop && e.wantsEntry(o)
	})
}

// certain is true when no write of a place can come to light any more: a write
// without an answer shows in a list that starts long enough after it.
func (e *Engine) certain(place Place) bool {
	since, found := e.uncertain[place]
	if !found {
		return true
	}
	shown := since.Add(e.cfg.Consistency)
	if e.listing.seen.Before(shown) {
		e.needList(shown)
		return false
	}
	delete(e.uncertain, place)
	return true
}

// adopt records routes that are as wanted and ours, or may become ours, and
// that the ledger lacks.
func (e *Engine) adopt(c *claim) {
	if !c.holds() || c.hop().value == "" {
		return
	}
	for _, table := range e.tables {
		place := Place{table, c.dest}
		if _, found := e.book.find(c.node.Name, table, c.dest); found || e.writes[place] != nil || e.bookBusy[entryKey{c.node.Name, place}] {
			continue
		}
		ours := slices.ContainsFunc(e.view.at(place), func(r vpc.Route) bool {
			return r.NextHop == c.hop().value && (r.Owner == e.cfg.Owner || e.proved(r) || r.Owner == "" && e.cfg.Adopt)
		})
		if !ours {
			continue
		}
		e.changeBook(Entry{c.node.Name, c.node.UID, table, c.dest, c.hop().value, nil}, false)
		e.observe(Event{Kind: RouteAdopted, Node: c.node.Name, Table: table, Destination: c.dest, Message: fmt.Sprintf(
			"%s in table %s leads to node %s as it should; the ledger did not know it and records it", c.dest, table, c.node.Name)})
	}
}

// changeBook records or forgets one entry.
func (e *Engine) changeBook(entry Entry, forget bool) {
	e.bookBusy[keyOf(entry)] = true
	e.do(func() func() {
		act := e.cfg.Ledger.Record
		if forget {
			act = e.cfg.Ledger.Forget
		}
		err := first(act(e.ctx, []Entry{entry}))
		return func() { e.bookChanged(entry, forget, err) }
	})
}

func (e *Engine) bookChanged(entry Entry, forget bool, err error) {
	delete(e.bookBusy, keyOf(entry))
	switch {
	case err != nil:
		e.observe(Event{Kind: LedgerFailed, Node: entry.Node, Table: entry.Table, Destination: entry.Destination, Message: fmt.Sprintf("the ledger: %v", err)})
		e.later(backoff(3), entry.Destination)
	case forget:
		e.book.remove(entry)
		e.dirty[entry.Destination] = true
	default:
		e.book.put(entry)
		e.dirty[entry.Destination] = true
	}
}

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}
