package vpc

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A world is a small random cluster and table: few enough destinations and next
// hops that every kind of collision comes up.
type world struct {
	desired, actual []Route
	rules           Rules
	marks, shared   bool // the cloud marks routes; takes several next hops per destination
}

var (
	worldDestinations = []string{
		"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "10.244.1.128/25", "10.244.0.0/20",
		"10.244.0.0/16", "0.0.0.0/0", "10.245.1.0/24", "fd00:10:0:1::/64", "fd00:10:0:2::/64", "10.244.1.7/24",
	}
	worldTables = []string{"t1", "t2", "unmanaged"}
	worldHops   = []NextHop{"", "i-1", "i-2", "i-3", "i-4"}
	worldOwners = []string{"", "prod", "prod", "prod", "prod-eu"}
)

func newWorld(seed uint64) world {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := world{marks: rnd.IntN(2) == 0, shared: rnd.IntN(2) == 0}
	w.rules = with(func(r *Rules) { r.Tables = worldTables[:1+rnd.IntN(2)]; r.MaxDeletes = rnd.IntN(5) - 1 })
	for range rnd.IntN(6) {
		w.desired = append(w.desired, w.random(rnd, ""))
	}
	type slot struct {
		place
		hop NextHop
	}
	taken := map[slot]bool{}
	for range rnd.IntN(12) {
		r := w.random(rnd, worldTables[rnd.IntN(len(worldTables))])
		r.Node = ""
		if w.marks {
			r.Owner = worldOwners[rnd.IntN(len(worldOwners))]
		}
		r.Blackhole = rnd.IntN(5) == 0
		at := slot{place: placeOf(r)}
		if w.shared {
			at.hop = r.NextHop
		}
		if taken[at] {
			continue
		}
		taken[at] = true
		w.actual = append(w.actual, r)
		if !w.marks && rnd.IntN(2) == 0 {
			w.rules.Ledger = append(w.rules.Ledger, Route{Table: r.Table, Destination: r.Destination, NextHop: r.NextHop})
		}
	}
	return w
}

func (w world) random(rnd *rand.Rand, table string) Route {
	hop := rnd.IntN(len(worldHops))
	return Route{
		Table:       table,
		Destination: netip.MustParsePrefix(worldDestinations[rnd.IntN(len(worldDestinations))]),
		NextHop:     worldHops[hop],
		Node:        "node" + string(worldHops[hop]),
	}
}

// isOurs says again, in other words than the plan, what is ours.
func (w world) isOurs(r Route) bool {
	if !slices.Contains(w.rules.Tables, r.Table) || r.Destination.Masked() != r.Destination {
		return false
	}
	if w.marks {
		return r.Owner == w.rules.Owner
	}
	return slices.ContainsFunc(w.rules.Ledger, func(l Route) bool {
		same := l.Table == r.Table && l.Destination == r.Destination
		return same && (l.NextHop == r.NextHop || r.Blackhole && r.NextHop == "")
	})
}

// apply does what a cloud would, and fails the test where a plan is not safe.
func (w *world) apply(t *testing.T, changes []Change) {
	t.Helper()
	for _, c := range changes {
		old := c.Route
		if c.Op == Replace {
			old = c.Old
		}
		if c.Op != Create {
			i := slices.Index(w.actual, old)
			if i < 0 || !w.isOurs(old) {
				t.Fatalf("%s of %+v, which is not an entry of ours", c.Op, old)
			}
			w.actual = slices.Delete(w.actual, i, i+1)
		}
		if c.Op == Delete {
			continue
		}
		if c.Op == Replace && placeOf(old) != placeOf(c.Route) {
			t.Fatalf("replace of %+v by %+v moves it", old, c.Route)
		}
		for _, r := range w.actual {
			if placeOf(r) == placeOf(c.Route) && (c.Op == Create || r.NextHop == c.Route.NextHop) {
				t.Fatalf("%s of %+v beside %+v", c.Op, c.Route, r)
			}
		}
		made := c.Route
		made.Node = ""
		if !w.marks {
			made.Owner = ""
			w.rules.Ledger = append(w.rules.Ledger, Route{Table: made.Table, Destination: made.Destination, NextHop: made.NextHop})
		}
		w.actual = append(w.actual, made)
	}
}

// FuzzPlan checks what must hold for any input.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		before := slices.Clone(w.actual)
		diff := Plan(w.desired, w.actual, w.rules)
		checkReasons(t, diff, "")
		checkOrderDoesNotMatter(t, w, diff, rand.New(rand.NewPCG(seed, 2)))
		checkBrake(t, w, diff)
		checkNoRangeLosesItsRoute(t, w, diff)
		w.apply(t, diff.Changes)
		checkServed(t, w, diff)
		for _, r := range before {
			if !w.isOurs(r) && !slices.Contains(w.actual, r) {
				t.Errorf("foreign %+v is gone", r)
			}
		}
		again := Plan(w.desired, w.actual, w.rules)
		if w.rules.MaxDeletes < 0 && len(again.Changes) > 0 {
			t.Errorf("planning again changes more:\n%s", diffText(again))
		}
		for _, c := range again.Changes {
			if c.Op != Delete {
				t.Errorf("planning again writes more:\n%s", diffText(again))
			}
		}
	})
}

func checkOrderDoesNotMatter(t *testing.T, w world, diff Diff, rnd *rand.Rand) {
	t.Helper()
	desired, actual := slices.Clone(w.desired), slices.Clone(w.actual)
	rnd.Shuffle(len(desired), func(i, j int) { desired[i], desired[j] = desired[j], desired[i] })
	rnd.Shuffle(len(actual), func(i, j int) { actual[i], actual[j] = actual[j], actual[i] })
	equalPrefixes := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if d := cmp.Diff(diff, Plan(desired, actual, w.rules), equalPrefixes); d != "" {
		t.Errorf("the order of the input changes the plan:\n%s", d)
	}
}

func checkBrake(t *testing.T, w world, diff Diff) {
	t.Helper()
	deletes := 0
	for _, c := range diff.Changes {
		if c.Op == Delete {
			deletes++
		}
	}
	limit := w.rules.MaxDeletes
	if limit == 0 {
		limit = 3
	}
	if limit > 0 && deletes > limit {
		t.Errorf("%d deletes, the brake allows %d", deletes, limit)
	}
	if len(diff.Held) > 0 && (limit < 0 || deletes < limit) {
		t.Errorf("%d held though only %d of %d deleted", len(diff.Held), deletes, limit)
	}
}

// checkNoRangeLosesItsRoute: whatever a node claims and has an entry of ours for
// has one after each single step.
func checkNoRangeLosesItsRoute(t *testing.T, w world, diff Diff) {
	t.Helper()
	entries := map[place]int{}
	for _, r := range w.actual {
		if w.isOurs(r) || leadsTo([]Route{r}, r.NextHop) {
			entries[placeOf(r)]++
		}
	}
	for _, c := range diff.Changes {
		switch c.Op {
		case Create:
			entries[placeOf(c.Route)]++
		case Delete:
			entries[placeOf(c.Route)]--
			for _, d := range w.desired {
				if d.Destination.Masked() == c.Route.Destination && entries[placeOf(c.Route)] < 1 {
					t.Errorf("%s is without a route after the delete of %+v", d.Destination, c.Route)
				}
			}
		}
	}
}

// checkServed: every desired route is there in every table, or a conflict names
// its node.
func checkServed(t *testing.T, w world, diff Diff) {
	t.Helper()
	for _, table := range w.rules.Tables {
		for _, d := range w.desired {
			conflict := slices.ContainsFunc(diff.Conflicts, func(c Conflict) bool {
				return c.Node == d.Node && c.Route.Destination == d.Destination && (c.Route.Table == "" || c.Route.Table == table)
			})
			there := leadsTo(slices.DeleteFunc(slices.Clone(w.actual), func(r Route) bool {
				return r.Table != table || r.Destination != d.Destination
			}), d.NextHop)
			if there == conflict && d.NextHop != "" && !claimedTwice(w, d) {
				t.Errorf("%+v in %s: there %v, in conflict %v", d, table, there, conflict)
			}
		}
	}
}

// claimedTwice is true where a route can be there although it is in conflict.
func claimedTwice(w world, d Route) bool {
	return slices.ContainsFunc(w.desired, func(o Route) bool {
		return o.Destination.Overlaps(d.Destination) && o != d
	}) || !slices.ContainsFunc(w.rules.Ranges, func(r netip.Prefix) bool { return r.Contains(d.Destination.Addr()) && r.Bits() <= d.Destination.Bits() }) || d.Destination != d.Destination.Masked()
}

func BenchmarkPlan5000(b *testing.B) {
	var desired, actual []Route
	for i := range 5000 {
		d := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		desired = append(desired, Route{Destination: d, NextHop: "i-1", Node: "n"})
		if i%10 != 0 {
			actual = append(actual, Route{Table: "t1", Destination: d, NextHop: "i-1", Owner: "prod"})
		}
	}
	rules := with(func(r *Rules) { r.Ranges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	for b.Loop() {
		Plan(desired, actual, rules)
	}
}
