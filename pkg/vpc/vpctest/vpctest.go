// Package vpctest is the contract of vpc.RouteTable as a test suite: what the
// controller relies on, whatever the cloud. Every table passes it. It knows no
// cloud: what a cloud cannot do is said in the Harness, and must not be tested
// for here by its name.
package vpctest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Harness is a route table and the cloud behind it, fresh for one test. Its
// tables may hold entries already; they must not touch Ranges.
type Harness struct {
	// Table is what is tested.
	Table vpc.RouteTable
	// Tables are the ids of the managed tables; at least one.
	Tables []string
	// Owner is the mark that List shows on our routes; empty on a cloud that
	// cannot mark them.
	Owner string
	// Nodes are at least four nodes with a machine each, and with what Table
	// needs to find it for every family of Ranges.
	Nodes []vpc.Node
	// Dead is a node whose machine is not there. The zero Node means that the
	// cloud cannot tell.
	Dead vpc.Node
	// Lost is a next hop for which the cloud refuses a route, since nothing is
	// there, by family; nil when it takes any.
	Lost map[vpc.Family]vpc.NextHop
	// Ranges are cluster CIDRs free for the test, one per family that the cloud
	// routes: at least a /16 of IPv4 or a /48 of IPv6.
	Ranges []netip.Prefix
	// Put makes a stranger's entry by other means than Table. Its NextHop is one
	// that Table gave out for a node; its Owner means nothing.
	Put func(t testing.TB, r vpc.Route)
	// PutOdd puts into the tables what the cloud can hold and we would never
	// make, outside Ranges; nil when there is nothing of the kind.
	PutOdd func(t testing.TB)
	// Settle waits until List shows all that was done; nil when it always does.
	Settle func()
	// Max is the number of entries that fit in a table; 0 means no limit. A
	// small one (20) makes a fast test.
	Max int
	// Exclusive is true when the table itself is the mark: whatever is in it is
	// ours, so no entry in it is a stranger's.
	Exclusive bool
	// OnePerNextHop is true when a table takes one destination per next hop. It
	// goes with one range only.
	OnePerNextHop bool
	// Terminate makes a node's machine vanish, after which List must call its
	// routes blackholes; nil when the cloud cannot tell.
	Terminate func(t testing.TB, node vpc.Node)
	// FailNext makes the cloud answer the next write with an error of a class,
	// and returns false when it knows no such error; nil when it never fails.
	FailNext func(t testing.TB, class vpc.Class) bool
	// LoseAnswer makes the cloud do the next write but not say so; nil when that
	// cannot happen.
	LoseAnswer func(t testing.TB)
}

// Run tests one kind of table. start is called once per test.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"next hop follows the machine, not the node's name", testNextHop},
		{"next hop of a node that lacks what is needed", testNextHopErrors},
		{"created routes are listed as wanted", testCreate},
		{"a repeated change is no error and changes nothing", testRepeat},
		{"a create where the destination is taken says exists", testCreateTaken},
		{"a replace changes the next hop and nothing else", testReplace},
		{"a replace whose old entry is gone tells the truth", testReplaceGone},
		{"a replace does not overwrite a stranger's entry", testReplaceForeign},
		{"a delete removes one entry and none that came after it", testDelete},
		{"entries of strangers and odd ones are listed", testForeignListed},
		{"a batch has one answer per change", testBatch},
		{"what the cloud cannot route is refused", testRefused},
		{"limits count the entries", testLimits},
		{"a full table is a matter of quota", testQuota},
		{"many routes in one batch", testMany},
		{"a cancelled context ends a call without a write", testCancelled},
		{"calls at the same time", testConcurrent},
		{"two nodes swap their ranges", testSwap},
		{"plans and their application converge and touch no stranger's entry", testConverge},
		{"routes to a vanished machine are blackholes", testBlackhole},
		{"errors have their class, and the next try works", testErrors},
		{"a lost answer is found out", testLostAnswer},
		{"preflight explains itself and writes nothing", testPreflight},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newSuite(t, start(t))) })
	}
}

// A suite is a harness within one test.
type suite struct {
	*testing.T
	Harness
	// ledger is what pkg/routes would know to be ours.
	ledger []vpc.Route
}

func newSuite(t *testing.T, h Harness) *suite {
	t.Helper()
	if h.Table == nil || len(h.Tables) == 0 || len(h.Nodes) < 4 || len(h.Ranges) == 0 || h.Put == nil {
		t.Fatal("the harness lacks Table, Tables, four Nodes, Ranges or Put")
	}
	if h.OnePerNextHop && len(h.Ranges) > 1 {
		t.Fatal("the harness has one destination per next hop and ranges of two families")
	}
	if h.Settle == nil {
		h.Settle = func() {}
	}
	return &suite{T: t, Harness: h}
}

// destination returns the n-th range of a node's size in a cluster CIDR.
func destination(r netip.Prefix, n int) netip.Prefix {
	addr, bits, at := r.Addr().AsSlice(), 24, 2
	if r.Addr().Is6() {
		bits, at = 64, 7
	}
	addr[at] = byte(n)
	if r.Addr().Is6() {
		addr[at-1] = byte(n >> 8)
	}
	a, _ := netip.AddrFromSlice(addr)
	return netip.PrefixFrom(a, bits)
}

// hop returns the next hop of the n-th node.
func (s *suite) hop(n int, family vpc.Family) vpc.NextHop {
	s.Helper()
	hop, err := s.Table.NextHop(s.Context(), s.Nodes[n], family)
	if err != nil {
		s.Fatalf("next hop of node %s: %v", s.Nodes[n].Name, err)
	}
	return hop
}

// route is the route to the n-th range of a cluster CIDR over the node-th node.
func (s *suite) route(r netip.Prefix, n, node int) vpc.Route {
	s.Helper()
	return vpc.Route{
		Table: s.Tables[0], Destination: destination(r, n), Owner: s.Owner, Node: s.Nodes[node].Name,
		NextHop: s.hop(node, vpc.FamilyOf(r)),
	}
}

// everywhere repeats a route in each table.
func (s *suite) everywhere(r vpc.Route) []vpc.Route {
	var routes []vpc.Route
	for _, table := range s.Tables {
		r.Table = table
		routes = append(routes, r)
	}
	return routes
}

func create(routes ...vpc.Route) []vpc.Change {
	var changes []vpc.Change
	for _, r := range routes {
		changes = append(changes, vpc.Change{Op: vpc.Create, Route: r, Reason: "a test wants it"})
	}
	return changes
}

// apply makes changes and returns their answers.
func (s *suite) apply(changes ...vpc.Change) []error {
	s.Helper()
	errs := s.Table.Apply(s.Context(), changes)
	if len(errs) != len(changes) {
		s.Fatalf("%d answers for %d changes", len(errs), len(changes))
	}
	for i, err := range errs {
		if err == nil && changes[i].Op != vpc.Delete {
			s.ledger = append(s.ledger, changes[i].Route)
		}
	}
	return errs
}

// must makes changes that have to succeed, and waits until they show.
func (s *suite) must(changes ...vpc.Change) {
	s.Helper()
	for i, err := range s.apply(changes...) {
		if err != nil {
			s.Fatalf("%s %v to %s: %v", changes[i].Op, changes[i].Route.Destination, changes[i].Route.NextHop, err)
		}
	}
	s.Settle()
}

// put makes a stranger's entry and waits until it shows.
func (s *suite) put(r vpc.Route) {
	s.Helper()
	r.Owner, r.Node = "", ""
	s.Put(s.T, r)
	s.Settle()
}

func (s *suite) list() []vpc.Route {
	s.Helper()
	routes, err := s.Table.List(s.Context())
	if err != nil {
		s.Fatalf("list: %v", err)
	}
	for _, r := range routes {
		if !slices.Contains(s.Tables, r.Table) {
			s.Errorf("entry %+v is of no managed table", r)
		}
		if r.Destination.IsValid() == (r.Text != "") || r.Destination != r.Destination.Masked() {
			s.Errorf("entry %+v has not exactly one of a whole Destination and a Text", r)
		}
	}
	return routes
}

// at returns the listed entries for a route's destination in its table.
func (s *suite) at(r vpc.Route) []vpc.Route {
	s.Helper()
	return slices.DeleteFunc(s.list(), func(l vpc.Route) bool {
		return l.Table != r.Table || l.Destination != r.Destination
	})
}

// want checks that a destination has exactly one entry, and that it is the
// wanted one.
func (s *suite) want(r vpc.Route) vpc.Route {
	s.Helper()
	found := s.at(r)
	if len(found) != 1 || found[0].NextHop != r.NextHop {
		s.Fatalf("%v in %s has %s, want one entry to %s", r.Destination, r.Table, hops(found), r.NextHop)
	}
	return found[0]
}

// wantOurs is want for a route that Table made.
func (s *suite) wantOurs(r vpc.Route) vpc.Route {
	s.Helper()
	found := s.want(r)
	if found.Owner != s.Owner {
		s.Errorf("%v has the mark %q, want %q", r.Destination, found.Owner, s.Owner)
	}
	if found.Blackhole {
		s.Errorf("%v is called a blackhole", r.Destination)
	}
	return found
}

// wantGone checks that a destination has no entry.
func (s *suite) wantGone(r vpc.Route) {
	s.Helper()
	if found := s.at(r); len(found) != 0 {
		s.Errorf("%v in %s still has %s", r.Destination, r.Table, hops(found))
	}
}

func hops(routes []vpc.Route) string {
	if len(routes) == 0 {
		return "no entry"
	}
	var text []string
	for _, r := range routes {
		text = append(text, string(r.NextHop))
	}
	return fmt.Sprintf("%d entries to %v", len(routes), text)
}

// wantClass checks that an error has one of some classes.
func (s *suite) wantClass(what string, err error, classes ...vpc.Class) {
	s.Helper()
	if err == nil || !slices.Contains(classes, vpc.ClassOf(err)) {
		s.Errorf("%s: error %v of class %v, want one of %v", what, err, vpc.ClassOf(err), classes)
	}
}

// strangers returns the listed entries that carry no mark of ours and are not
// in the ledger.
func (s *suite) strangers() []vpc.Route {
	s.Helper()
	return slices.DeleteFunc(s.list(), func(r vpc.Route) bool {
		if s.Owner != "" {
			return r.Owner == s.Owner
		}
		return slices.ContainsFunc(s.ledger, func(l vpc.Route) bool {
			return l.Table == r.Table && l.Destination == r.Destination && l.NextHop == r.NextHop
		})
	})
}
