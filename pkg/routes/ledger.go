package routes

import (
	"context"
	"net/netip"
	"slices"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// An Entry is one record of the ledger: that we asked, or are about to ask, for
// a route to a node's podCIDR in one table.
type Entry struct {
	// Node and UID are those of the Node the route is for.
	Node, UID   string
	Table       string
	Destination netip.Prefix
	NextHop     vpc.NextHop
	// Previous are next hops asked for earlier that the cloud may still hold.
	Previous []vpc.NextHop
}

// maxPrevious is how many next hops of an entry may be unconfirmed; the record
// of a VPCRoute takes no more.
const maxPrevious = 16

// A Ledger is the durable record of the routes that are ours. It is written
// before the cloud is asked and cleared after the cloud has forgotten, so a
// crash at any point loses neither a route nor the proof that it is ours.
// There is one entry per node, table and destination. Implementations are safe
// for concurrent use.
type Ledger interface {
	// Load returns every entry.
	Load(ctx context.Context) ([]Entry, error)
	// Record makes entries durable, new or changed, and returns one answer for
	// each, in their order.
	Record(ctx context.Context, entries []Entry) []error
	// Forget removes entries and returns one answer for each; nil for one that
	// is not there.
	Forget(ctx context.Context, entries []Entry) []error
}

// hops are the next hops under which the cloud may hold the entry's route.
func (e Entry) hops() []vpc.NextHop {
	if e.NextHop == "" {
		return e.Previous
	}
	return append([]vpc.NextHop{e.NextHop}, e.Previous...)
}

func (e Entry) equal(o Entry) bool {
	return e.Node == o.Node && e.UID == o.UID && e.Table == o.Table && e.Destination == o.Destination &&
		e.NextHop == o.NextHop && slices.Equal(e.Previous, o.Previous)
}

// pointed returns the entry with another next hop, the old one kept as proof
// until the cloud is seen to hold the new one.
func (e Entry) pointed(uid string, hop vpc.NextHop) Entry {
	e.UID = uid
	if e.NextHop == hop {
		return e
	}
	previous := slices.DeleteFunc(slices.Clone(e.Previous), func(p vpc.NextHop) bool { return p == hop })
	if e.NextHop != "" && !slices.Contains(previous, e.NextHop) {
		previous = append(previous, e.NextHop)
	}
	e.NextHop, e.Previous = hop, previous
	return e
}

// A book is the ledger as the engine knows it: what is durable, by destination.
type book struct {
	entries prefixMap[[]Entry]
}

func (b *book) find(node, table string, dest netip.Prefix) (Entry, bool) {
	for _, e := range b.entries.get(dest) {
		if e.Node == node && e.Table == table {
			return e, true
		}
	}
	return Entry{}, false
}

func (b *book) put(e Entry) {
	b.remove(e)
	b.entries.set(e.Destination, append(b.entries.get(e.Destination), e))
}

func (b *book) remove(e Entry) {
	rest := slices.DeleteFunc(slices.Clone(b.entries.get(e.Destination)), func(o Entry) bool {
		return o.Node == e.Node && o.Table == e.Table
	})
	if len(rest) == 0 {
		b.entries.delete(e.Destination)
		return
	}
	b.entries.set(e.Destination, rest)
}

// proofs are the routes that entries prove ours, as vpc.Rules wants them.
func proofs(entries []Entry) []vpc.Route {
	var routes []vpc.Route
	for _, e := range entries {
		for _, hop := range e.hops() {
			routes = append(routes, vpc.Route{Table: e.Table, Destination: e.Destination, NextHop: hop})
		}
	}
	return routes
}

// Memory is a Ledger that ends with the process. It serves where the cloud
// itself marks routes as ours, since the mark is then the proof.
type Memory struct{}

// Load returns nothing.
func (Memory) Load(context.Context) ([]Entry, error) { return nil, nil }

// Record succeeds; the engine keeps its own copy.
func (Memory) Record(_ context.Context, entries []Entry) []error { return make([]error, len(entries)) }

// Forget succeeds.
func (Memory) Forget(_ context.Context, entries []Entry) []error { return make([]error, len(entries)) }
