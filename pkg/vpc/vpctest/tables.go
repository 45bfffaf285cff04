package vpctest

import (
	"math/rand/v2"
	"slices"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

func (s *suite) limits() vpc.Limits {
	s.Helper()
	limits, err := s.Table.Limits(s.Context())
	if err != nil {
		s.Fatalf("limits: %v", err)
	}
	return limits
}

func testLimits(s *suite) {
	before := s.limits()
	var tables []string
	for _, t := range before.Tables {
		tables = append(tables, t.Table)
		if t.Max != s.Max {
			s.Errorf("table %s takes %d entries, want %d", t.Table, t.Max, s.Max)
		}
	}
	slices.Sort(tables)
	if !slices.Equal(tables, slices.Sorted(slices.Values(s.Tables))) {
		s.Fatalf("limits of tables %v, want %v", tables, s.Tables)
	}
	var families []vpc.Family
	for _, r := range s.Ranges {
		families = append(families, vpc.FamilyOf(r))
	}
	slices.Sort(families)
	if got := slices.Sorted(slices.Values(before.Families)); !slices.Equal(got, families) {
		s.Errorf("families %v, want %v", got, families)
	}
	s.must(create(slices.Concat(s.everywhere(s.route(s.Ranges[0], 1, 0)), s.everywhere(s.route(s.Ranges[0], 2, 1)))...)...)
	for i, t := range s.limits().Tables {
		if t.Used != before.Tables[i].Used+2 {
			s.Errorf("table %s has %d entries, want %d", t.Table, t.Used, before.Tables[i].Used+2)
		}
	}
}

// spread returns n routes in the first range, over all nodes in turn.
func (s *suite) spread(n int) []vpc.Route {
	var routes []vpc.Route
	for i := range n {
		routes = append(routes, s.route(s.Ranges[0], i, i%len(s.Nodes)))
	}
	return routes
}

// testQuota: of too many routes as many are made as fit, and the others answer
// with class Quota (R070).
func testQuota(s *suite) {
	if s.Max == 0 {
		return
	}
	room := s.Max - s.limits().Tables[0].Used
	if s.OnePerNextHop && len(s.Nodes) < room+2 || room > 250 {
		s.Fatalf("the harness has %d nodes for a table with room for %d: make Max smaller", len(s.Nodes), room)
	}
	routes := s.spread(room + 2)
	errs := s.apply(create(routes...)...)
	s.Settle()
	made := 0
	for i, err := range errs {
		if err != nil {
			s.wantClass("create in a full table", err, vpc.Quota)
			s.wantGone(routes[i])
			continue
		}
		made++
		s.wantOurs(routes[i])
	}
	if made != room {
		s.Errorf("%d routes made in a table with room for %d", made, room)
	}
}

// testMany fills more than one page and one batch of any cloud.
func testMany(s *suite) {
	n := 220
	if s.Max > 0 {
		n = min(n, s.Max-s.limits().Tables[0].Used)
	}
	if s.OnePerNextHop {
		n = min(n, len(s.Nodes))
	}
	routes := s.spread(n)
	s.must(create(routes...)...)
	found := s.list()
	var deletes []vpc.Change
	for _, r := range routes {
		i := slices.IndexFunc(found, func(f vpc.Route) bool {
			return f.Table == r.Table && f.Destination == r.Destination && f.NextHop == r.NextHop
		})
		if i < 0 {
			s.Fatalf("%v of %d routes is not listed", r.Destination, n)
		}
		deletes = append(deletes, vpc.Change{Op: vpc.Delete, Route: found[i]})
	}
	s.must(deletes...)
	if left := len(s.list()); left != len(found)-n {
		s.Errorf("%d entries left, want %d", left, len(found)-n)
	}
}

// testSwap: in a table with one destination per next hop neither replace can go
// first. Within a few plans both nodes have their new range.
func testSwap(s *suite) {
	r := s.Ranges[0]
	a, b := s.route(r, 1, 0), s.route(r, 2, 1)
	s.must(create(a, b)...)
	a.NextHop, b.NextHop = b.NextHop, a.NextHop
	s.converge([]vpc.Route{a, b})
	s.wantOurs(a)
	s.wantOurs(b)
}

func (s *suite) rules() vpc.Rules {
	return vpc.Rules{Owner: s.Owner, Ranges: s.Ranges, Tables: s.Tables, Ledger: s.ledger, MaxDeletes: -1}
}

// converge plans and applies until nothing is left to do, as the controller
// does: the ledger knows of a route before the cloud.
func (s *suite) converge(desired []vpc.Route) vpc.Diff {
	s.Helper()
	for range 4 {
		diff := vpc.Plan(desired, s.list(), s.rules())
		if len(diff.Changes) == 0 {
			return diff
		}
		for _, c := range diff.Changes {
			if c.Op != vpc.Delete {
				s.ledger = append(s.ledger, c.Route)
			}
		}
		for i, err := range s.apply(diff.Changes...) {
			if err != nil && vpc.ClassOf(err) != vpc.Exists && vpc.ClassOf(err) != vpc.InProgress {
				s.Errorf("%s %v: %v", diff.Changes[i].Op, diff.Changes[i].Route.Destination, err)
			}
		}
		s.Settle()
	}
	s.Fatalf("not done after four plans: %+v", vpc.Plan(desired, s.list(), s.rules()).Changes)
	return vpc.Diff{}
}

// testConverge changes its mind again and again, among strangers.
func testConverge(s *suite) {
	if s.PutOdd != nil {
		s.PutOdd(s.T)
	}
	if !s.Exclusive {
		s.put(s.route(s.Ranges[0], 0, 3))
	}
	before := s.strangers()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		var desired []vpc.Route
		for i, node := range rnd.Perm(3) {
			r := s.Ranges[(i+node)%len(s.Ranges)]
			if rnd.IntN(4) > 0 {
				desired = append(desired, s.route(r, 1+i, node))
			}
		}
		wanted := slices.Clone(desired)
		if !s.Exclusive {
			blocked := s.route(s.Ranges[0], 0, 2)
			blocked.Node = "blocked"
			wanted = append(wanted, blocked)
		}
		diff := s.converge(wanted)
		for _, r := range desired {
			for _, wanted := range s.everywhere(r) {
				s.wantOurs(wanted)
			}
		}
		if !s.Exclusive && !slices.ContainsFunc(diff.Conflicts, func(c vpc.Conflict) bool { return c.Node == "blocked" }) {
			s.Errorf("the stranger's entry in our range is no conflict: %+v", diff.Conflicts)
		}
		if after := s.strangers(); !slices.Equal(after, before) {
			s.Fatalf("strangers' entries were %+v and are %+v", before, after)
		}
	}
	s.converge(nil)
	if after := s.list(); len(after) != len(before) {
		s.Errorf("%d entries left, want the %d of strangers", len(after), len(before))
	}
}

func testBlackhole(s *suite) {
	if s.Terminate == nil {
		return
	}
	for _, r := range s.Ranges {
		s.must(create(s.route(r, 1, 1))...)
	}
	dead := make([]vpc.Route, len(s.Ranges))
	for i, r := range s.Ranges {
		dead[i] = s.route(r, 1, 1)
	}
	s.Terminate(s.T, s.Nodes[1])
	s.Settle()
	for i, r := range s.Ranges {
		found := s.at(dead[i])
		if len(found) != 1 || !found[0].Blackhole {
			s.Fatalf("entries for %v to a vanished machine are %+v, want one blackhole (R057)", dead[i].Destination, found)
		}
		live := s.route(r, 1, 2)
		s.must(vpc.Change{Op: vpc.Replace, Route: live, Old: found[0]})
		s.must(vpc.Change{Op: vpc.Delete, Route: s.wantOurs(live)})
	}
}

func testErrors(s *suite) {
	if s.FailNext == nil {
		return
	}
	r := s.Ranges[0]
	for n, class := range []vpc.Class{vpc.Transient, vpc.Throttled, vpc.Quota, vpc.InProgress, vpc.Denied} {
		route := s.route(r, 1+n, n%4)
		if s.OnePerNextHop {
			s.converge(nil)
		}
		if !s.FailNext(s.T, class) {
			continue
		}
		err := s.apply(create(route)...)[0]
		s.Settle()
		if err != nil {
			s.wantClass("create", err, class)
			s.wantGone(route)
			s.must(create(route)...)
		}
		s.wantOurs(route)
	}
}

// testLostAnswer: whatever the answer, another look and plan put it right.
func testLostAnswer(s *suite) {
	if s.LoseAnswer == nil {
		return
	}
	for _, r := range s.Ranges {
		first, second := s.route(r, 1, 0), s.route(r, 1, 1)
		for _, wanted := range [][]vpc.Route{{first}, {second}, nil} {
			s.LoseAnswer(s.T)
			s.try(wanted)
			s.converge(wanted)
			for _, w := range wanted {
				for _, everywhere := range s.everywhere(w) {
					s.wantOurs(everywhere)
				}
			}
		}
		s.wantGone(first)
	}
}

// try plans and applies once, and takes any answer.
func (s *suite) try(desired []vpc.Route) {
	s.Helper()
	changes := vpc.Plan(desired, s.list(), s.rules()).Changes
	for _, c := range changes {
		if c.Op != vpc.Delete {
			s.ledger = append(s.ledger, c.Route)
		}
	}
	s.apply(changes...)
	s.Settle()
}

func testPreflight(s *suite) {
	s.must(create(s.route(s.Ranges[0], 1, 0))...)
	before := s.list()
	for _, f := range s.Table.Preflight(s.Context()) {
		known := f.Severity == vpc.SeverityError || f.Severity == vpc.SeverityWarning || f.Severity == vpc.SeverityInfo
		if !known || f.Object == "" || f.Message == "" || f.Fix == "" && f.Severity != vpc.SeverityInfo {
			s.Errorf("finding lacks something: %+v", f)
		}
	}
	if after := s.list(); !slices.Equal(after, before) {
		s.Errorf("preflight changed %+v into %+v", before, after)
	}
}
