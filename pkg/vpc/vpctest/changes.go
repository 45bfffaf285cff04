package vpctest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

func testNextHop(s *suite) {
	for _, r := range s.Ranges {
		family := vpc.FamilyOf(r)
		seen := map[vpc.NextHop]string{}
		for n, node := range s.Nodes {
			hop := s.hop(n, family)
			if other := seen[hop]; hop == "" || other != "" {
				s.Errorf("%v next hop %q of node %s is empty or that of node %q", family, hop, node.Name, other)
			}
			seen[hop] = node.Name
			renamed := node
			renamed.Name, renamed.UID = "renamed."+node.Name, "another"
			again, err := s.Table.NextHop(s.Context(), renamed, family)
			if again != hop || err != nil {
				s.Errorf("%v next hop of a renamed node %s: %q, %v, want %q", family, node.Name, again, err, hop)
			}
		}
	}
}

func testNextHopErrors(s *suite) {
	for _, r := range s.Ranges {
		family := vpc.FamilyOf(r)
		_, err := s.Table.NextHop(s.Context(), vpc.Node{Name: "bare"}, family)
		s.wantClass("node with neither provider ID nor address", err, vpc.Invalid, vpc.NotFound)
		if s.Dead.Name != "" {
			_, err := s.Table.NextHop(s.Context(), s.Dead, family)
			s.wantClass("node without a machine", err, vpc.NotFound)
		}
	}
}

func testCreate(s *suite) {
	var routes []vpc.Route
	for _, r := range s.Ranges {
		for n := range 3 {
			routes = append(routes, s.everywhere(s.route(r, n, n))...)
		}
	}
	before := len(s.list())
	s.must(create(routes...)...)
	for _, r := range routes {
		s.wantOurs(r)
	}
	if after := len(s.list()); after != before+len(routes) {
		s.Errorf("%d entries, want %d", after, before+len(routes))
	}
}

func testRepeat(s *suite) {
	for _, r := range s.Ranges {
		first, second := s.route(r, 1, 0), s.route(r, 1, 1)
		s.must(create(first)...)
		s.must(create(first)...)
		old := s.wantOurs(first)
		replace := vpc.Change{Op: vpc.Replace, Route: second, Old: old}
		s.must(replace)
		s.must(replace)
		remove := vpc.Change{Op: vpc.Delete, Route: s.wantOurs(second)}
		s.must(remove)
		s.must(remove)
		s.wantGone(first)
	}
}

func testCreateTaken(s *suite) {
	for _, r := range s.Ranges {
		ours, foreign := s.route(r, 1, 0), s.route(r, 2, 1)
		s.must(create(ours)...)
		s.put(foreign)
		for _, taken := range []vpc.Route{ours, foreign} {
			wanted := taken
			wanted.NextHop = s.hop(2, vpc.FamilyOf(r))
			s.wantClass("create over another entry", s.apply(create(wanted)...)[0], vpc.Exists)
			s.Settle()
			s.want(taken)
		}
	}
}

func testReplace(s *suite) {
	for _, r := range s.Ranges {
		beside, first, second := s.route(r, 1, 0), s.route(r, 2, 1), s.route(r, 2, 2)
		s.must(create(beside, first)...)
		s.must(vpc.Change{Op: vpc.Replace, Route: second, Old: s.wantOurs(first)})
		s.wantOurs(second)
		s.wantOurs(beside)
	}
}

func testReplaceGone(s *suite) {
	for _, r := range s.Ranges {
		first, second := s.route(r, 1, 0), s.route(r, 1, 1)
		s.must(create(first)...)
		old := s.wantOurs(first)
		s.must(vpc.Change{Op: vpc.Delete, Route: old})
		err := s.apply(vpc.Change{Op: vpc.Replace, Route: second, Old: old})[0]
		s.Settle()
		if err == nil {
			s.wantOurs(second)
		} else {
			s.wantClass("replace of what is gone", err, vpc.NotFound, vpc.InProgress)
			s.wantGone(second)
		}
	}
}

func testReplaceForeign(s *suite) {
	for _, r := range s.Ranges {
		first, second, foreign := s.route(r, 1, 0), s.route(r, 1, 1), s.route(r, 1, 2)
		s.must(create(first)...)
		old := s.wantOurs(first)
		s.must(vpc.Change{Op: vpc.Delete, Route: old})
		s.put(foreign)
		err := s.apply(vpc.Change{Op: vpc.Replace, Route: second, Old: old})[0]
		s.wantClass("replace of a stranger's entry", err, vpc.Exists, vpc.InProgress, vpc.NotFound)
		s.Settle()
		s.want(foreign)
	}
}

func testDelete(s *suite) {
	for _, r := range s.Ranges {
		gone, beside, foreign := s.route(r, 1, 0), s.route(r, 2, 1), s.route(r, 1, 2)
		s.must(create(gone, beside)...)
		remove := vpc.Change{Op: vpc.Delete, Route: s.wantOurs(gone)}
		s.must(remove)
		s.wantGone(gone)
		s.wantOurs(beside)
		s.put(foreign)
		s.must(remove)
		s.want(foreign)
		never := vpc.Change{Op: vpc.Delete, Route: s.route(r, 3, 3)}
		s.must(never)
	}
}

func testForeignListed(s *suite) {
	before := len(s.list())
	var foreign []vpc.Route
	for _, r := range s.Ranges {
		foreign = append(foreign, s.route(r, 1, len(foreign)))
	}
	for _, r := range foreign {
		s.put(r)
		if found := s.want(r); s.Owner != "" && found.Owner == s.Owner && !s.Exclusive {
			s.Errorf("a stranger's entry %+v carries our mark", found)
		}
	}
	if s.PutOdd == nil {
		return
	}
	s.PutOdd(s.T)
	s.Settle()
	if after := len(s.list()); after <= before+len(foreign) {
		s.Errorf("%d entries listed with the odd ones, %d without", after, before+len(foreign))
	}
	for _, r := range foreign {
		s.want(r)
	}
}

func testBatch(s *suite) {
	r := s.Ranges[0]
	good, good2, bits, nowhere, elsewhere := s.route(r, 1, 0), s.route(r, 2, 1), s.route(r, 3, 2), s.route(r, 4, 2), s.route(r, 5, 2)
	bits.Destination = netip.PrefixFrom(bits.Destination.Addr().Next(), bits.Destination.Bits())
	nowhere.NextHop = s.Lost[vpc.FamilyOf(r)]
	elsewhere.Table = "no-such-table"
	changes := create(good, bits, nowhere, elsewhere, good2)
	changes = append(changes, vpc.Change{Op: vpc.Delete, Route: s.route(r, 6, 3)})
	errs := s.apply(changes...)
	s.Settle()
	for _, i := range []int{0, 4, 5} {
		if errs[i] != nil {
			s.Errorf("%s %v beside bad ones: %v", changes[i].Op, changes[i].Route.Destination, errs[i])
		}
	}
	s.wantClass("destination with host bits", errs[1], vpc.Invalid)
	s.wantClass("next hop where nothing is", errs[2], vpc.NotFound, vpc.Invalid)
	s.wantClass("table that is not managed", errs[3], vpc.NotFound, vpc.Invalid)
	s.wantOurs(good)
	s.wantOurs(good2)
	s.wantGone(nowhere)
	if errs := s.apply(); len(errs) != 0 {
		s.Errorf("answers to nothing: %v", errs)
	}
}

// testRefused: a family that the cloud does not route is refused in words, not
// left out, and so are an IPv4 range in IPv6 clothes, one with host bits and no
// range at all.
func testRefused(s *suite) {
	odd := s.route(s.Ranges[0], 1, 0)
	for _, d := range []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.77.1.0/120")} {
		odd.Destination = d
		s.wantClass(fmt.Sprintf("create %v", d), s.apply(create(odd)...)[0], vpc.Invalid)
	}
	for _, r := range s.Ranges {
		bits := s.route(r, 1, 0)
		bits.Destination = netip.PrefixFrom(bits.Destination.Addr().Next(), bits.Destination.Bits())
		s.wantClass(fmt.Sprintf("create %v", bits.Destination), s.apply(create(bits)...)[0], vpc.Invalid)
		s.wantGone(s.route(r, 1, 0))
	}
	for _, absent := range s.absent() {
		_, err := s.Table.NextHop(s.Context(), s.Nodes[0], vpc.FamilyOf(absent))
		s.wantClass(fmt.Sprintf("%v next hop", vpc.FamilyOf(absent)), err, vpc.Invalid)
		odd.Destination = absent
		s.wantClass(fmt.Sprintf("create %v", absent), s.apply(create(odd)...)[0], vpc.Invalid)
	}
}

// absent returns a destination of each family that the cloud does not route.
func (s *suite) absent() []netip.Prefix {
	all := []netip.Prefix{netip.MustParsePrefix("10.77.1.0/24"), netip.MustParsePrefix("fd77:1::/64")}
	return slices.DeleteFunc(all, func(p netip.Prefix) bool {
		return slices.ContainsFunc(s.Ranges, func(r netip.Prefix) bool { return vpc.FamilyOf(r) == vpc.FamilyOf(p) })
	})
}

func testCancelled(s *suite) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	r := s.route(s.Ranges[0], 1, 0)
	if _, err := s.Table.List(ctx); !errors.Is(err, context.Canceled) {
		s.Errorf("list: %v, want the context's error", err)
	}
	if _, err := s.Table.Limits(ctx); !errors.Is(err, context.Canceled) {
		s.Errorf("limits: %v, want the context's error", err)
	}
	errs := s.Table.Apply(ctx, create(r, s.route(s.Ranges[0], 2, 1)))
	if len(errs) != 2 {
		s.Fatalf("%d answers for 2 changes", len(errs))
	}
	for _, err := range errs {
		if !vpc.IsCancelled(err) {
			s.Errorf("apply: %v, want the context's error", err)
		}
	}
	s.Settle()
	s.wantGone(r)
}

func testConcurrent(s *suite) {
	var wg sync.WaitGroup
	var routes []vpc.Route
	for n := range s.Nodes[:4] {
		routes = append(routes, s.route(s.Ranges[0], n, n))
	}
	for _, r := range routes {
		wg.Go(func() {
			if err := s.Table.Apply(s.Context(), create(r))[0]; err != nil {
				s.Errorf("create %v: %v", r.Destination, err)
			}
		})
		wg.Go(func() {
			if _, err := s.Table.List(s.Context()); err != nil {
				s.Errorf("list: %v", err)
			}
			if _, err := s.Table.Limits(s.Context()); err != nil {
				s.Errorf("limits: %v", err)
			}
			if _, err := s.Table.NextHop(s.Context(), s.Nodes[0], vpc.FamilyOf(r.Destination)); err != nil {
				s.Errorf("next hop: %v", err)
			}
		})
	}
	wg.Wait()
	s.Settle()
	for _, r := range routes {
		s.wantOurs(r)
	}
}
