package vpc

import "net/netip"

// Rules are what a plan has to respect.
type Rules struct {
	// Owner is this installation's mark (its cluster id).
	Owner string
	// Ranges are the cluster CIDRs. A desired route outside them is refused, and
	// only a foreign route touching them is worth reporting.
	Ranges []netip.Prefix
	// Tables are the ids of the managed tables; every desired route is wanted in
	// each of them.
	Tables []string
	// Ledger holds the routes that the ledger proves ours, on clouds that cannot
	// mark routes. A found route is ours when its mark is Owner, or when it has
	// no mark and the ledger has its table, destination and next hop.
	Ledger []Route
	// MaxDeletes is the brake: a plan deletes at most this many routes; 0 means
	// the default of 20 % of ours, and at least 3. A negative value lifts it.
	MaxDeletes int
}

// A Conflict is a desired or foreign route that nothing can be done about.
type Conflict struct {
	// Route is the foreign entry, or the desired route that was refused.
	Route Route
	// Node is the node that has no route because of it; empty when none.
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
