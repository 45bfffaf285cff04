package vpc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func createOf(t testing.TB, lines ...string) []Change {
	t.Helper()
	var changes []Change
	for _, line := range lines {
		changes = append(changes, Change{Op: Create, Route: parseRoute(t, line)})
	}
	return changes
}

func fakeList(t testing.TB, f *Fake) string {
	t.Helper()
	routes, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return routesText(routes)
}

func routesText(routes []Route) string {
	var b strings.Builder
	for _, r := range routes {
		b.WriteString(entryText(r))
		if r.Blackhole {
			b.WriteString(" blackhole")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestFakeFaults(t *testing.T) {
	planted := Errorf(Throttled, "planted")
	in := netip.MustParsePrefix
	for _, tt := range []struct {
		name   string
		faults []Fault
		want   []bool // which of five creates succeed
		there  int    // how many routes are there in the end
	}{
		{"none", nil, []bool{true, true, true, true, true}, 5},
		{"every create", []Fault{{Op: OpCreate, Err: planted}}, []bool{false, false, false, false, false}, 0},
		{"the second and third", []Fault{{Op: OpCreate, Skip: 1, Times: 2, Err: planted}}, []bool{true, false, false, true, true}, 3},
		{"one destination", []Fault{{Op: OpCreate, Destination: in("10.244.3.0/24"), Err: planted}}, []bool{true, true, true, false, true}, 4},
		{"another operation", []Fault{{Op: OpDelete, Err: planted}, {Op: OpList, Err: planted}}, []bool{true, true, true, true, true}, 5},
		{"a lost answer", []Fault{{Op: OpCreate, Times: 1, Err: planted, Lost: true}}, []bool{false, true, true, true, true}, 5},
		{"the whole batch", []Fault{{Op: OpApply, Times: 1, Err: planted}}, []bool{false, false, false, false, false}, 0},
		{"the whole batch's answer is lost", []Fault{{Op: OpApply, Err: planted, Lost: true}}, []bool{false, false, false, false, false}, 5},
		{"two faults", []Fault{{Op: OpCreate, Times: 1, Err: planted}, {Op: OpCreate, Skip: 1, Times: 1, Err: planted}}, []bool{false, true, false, true, true}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFake(FakeConfig{})
			for _, fault := range tt.faults {
				f.Inject(fault)
			}
			var got []bool
			for _, err := range f.Apply(t.Context(), createOf(t, numbered(5)...)) {
				got = append(got, err == nil)
				if err != nil && (!errors.Is(err, planted) || ClassOf(err) != Throttled) {
					t.Errorf("error %v, want the planted one", err)
				}
			}
			if !slices.Equal(got, tt.want) || len(f.Routes()) != tt.there {
				t.Errorf("succeeded %v with %d routes, want %v with %d", got, len(f.Routes()), tt.want, tt.there)
			}
			f.Heal()
			for i, err := range f.Apply(t.Context(), createOf(t, numbered(5)...)) {
				if err != nil {
					t.Errorf("healed, create %d: %v", i, err)
				}
			}
			if n := len(f.Routes()); n != 5 {
				t.Errorf("%d routes in the end, want 5", n)
			}
		})
	}
}

func numbered(n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("rtb-1 10.244.%d.0/24 > i-%d", i, i))
	}
	return lines
}

func TestFakeFaultsOfReads(t *testing.T) {
	f := NewFake(FakeConfig{})
	planted := Errorf(Denied, "planted")
	for _, op := range []string{OpList, OpLimits, OpNextHop} {
		f.Inject(Fault{Op: op, Times: 1, Err: planted})
	}
	node := Node{Name: "a", ProviderID: "fake:///i-1"}
	_, list := f.List(t.Context())
	_, limits := f.Limits(t.Context())
	_, hop := f.NextHop(t.Context(), node, IPv4)
	for _, err := range []error{list, limits, hop} {
		if !errors.Is(err, planted) {
			t.Errorf("error %v, want the planted one", err)
		}
	}
	if got, err := f.NextHop(t.Context(), node, IPv4); got != "i-1" || err != nil {
		t.Errorf("next hop %q, %v after the fault", got, err)
	}
	if n := f.Count(OpList, OpLimits, OpNextHop); n != 4 {
		t.Errorf("%d calls counted, want 4", n)
	}
}

func TestFakeHoldsACallBack(t *testing.T) {
	f := NewFake(FakeConfig{})
	gate := make(chan struct{})
	f.Inject(Fault{Op: OpCreate, Wait: gate})
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan []error, 1)
	go func() { answers <- f.Apply(ctx, createOf(t, numbered(2)...)) }()
	select {
	case <-answers:
		t.Fatal("not held back")
	case <-time.After(10 * time.Millisecond):
	}
	if _, err := f.List(t.Context()); err != nil {
		t.Errorf("another call is held back too: %v", err)
	}
	cancel()
	for _, err := range <-answers {
		if !IsCancelled(err) {
			t.Errorf("error %v, want the context's", err)
		}
	}
	close(gate)
	for _, err := range f.Apply(t.Context(), createOf(t, numbered(2)...)) {
		if err != nil {
			t.Errorf("gate open: %v", err)
		}
	}
}

func TestFakeShowsWritesLate(t *testing.T) {
	now := time.Unix(1000, 0)
	f := NewFake(FakeConfig{Delay: 5 * time.Second, Now: func() time.Time { return now }})
	apply := func(c Change) {
		t.Helper()
		if err := f.Apply(t.Context(), []Change{c})[0]; err != nil {
			t.Fatal(err)
		}
	}
	check := func(when, listed, truth string) {
		t.Helper()
		if d := cmp.Diff(lines(listed)+"--\n"+lines(truth), fakeList(t, f)+"--\n"+routesText(f.Routes())); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	one, two := parseRoute(t, "rtb-1 10.244.1.0/24 > i-1"), parseRoute(t, "rtb-1 10.244.1.0/24 > i-2")
	apply(Change{Op: Create, Route: one})
	check("created", "", "rtb-1 10.244.1.0/24 > i-1")
	now = now.Add(5 * time.Second)
	check("later", "rtb-1 10.244.1.0/24 > i-1", "rtb-1 10.244.1.0/24 > i-1")
	apply(Change{Op: Replace, Route: two, Old: one})
	check("replaced", "rtb-1 10.244.1.0/24 > i-1", "rtb-1 10.244.1.0/24 > i-2")
	f.Settle()
	check("settled", "rtb-1 10.244.1.0/24 > i-2", "rtb-1 10.244.1.0/24 > i-2")
	apply(Change{Op: Delete, Route: two})
	check("deleted", "rtb-1 10.244.1.0/24 > i-2", "")
	f.Put(Route{Destination: netip.MustParsePrefix("10.0.0.0/8"), NextHop: "vgw"})
	check("put", "rtb-1 10.0.0.0/8 > vgw\n rtb-1 10.244.1.0/24 > i-2", "rtb-1 10.0.0.0/8 > vgw")
	now = now.Add(5 * time.Second)
	check("at last", "rtb-1 10.0.0.0/8 > vgw", "rtb-1 10.0.0.0/8 > vgw")
}

func TestFakeMachinesVanishAndReturn(t *testing.T) {
	f := NewFake(FakeConfig{})
	f.Put(parseRoute(t, "rtb-1 10.244.1.0/24 > i-1"))
	f.Terminate("i-1")
	if got := fakeList(t, f); got != "rtb-1 10.244.1.0/24 > i-1 blackhole\n" {
		t.Errorf("listed %q", got)
	}
	if err := f.Apply(t.Context(), createOf(t, "rtb-1 10.244.2.0/24 > i-1"))[0]; ClassOf(err) != NotFound {
		t.Errorf("create: %v, want NotFound", err)
	}
	f.Start("i-1")
	if got := fakeList(t, f); got != "rtb-1 10.244.1.0/24 > i-1\n" {
		t.Errorf("listed %q", got)
	}
	if n := f.Drop(func(r Route) bool { return r.NextHop == "i-1" }); n != 1 || len(f.Routes()) != 0 {
		t.Errorf("dropped %d, %d left", n, len(f.Routes()))
	}
}

func TestFakeRefusesToWriteAnotherOwnersEntry(t *testing.T) {
	f := NewFake(FakeConfig{Owner: "prod"})
	foreign := parseRoute(t, "rtb-1 10.244.1.0/24 > i-1 owner=prod-eu")
	f.Put(foreign)
	ours := foreign
	ours.NextHop = "i-2"
	for _, c := range []Change{{Op: Delete, Route: foreign}, {Op: Replace, Route: ours, Old: foreign}} {
		if err := f.Apply(t.Context(), []Change{c})[0]; err == nil || ClassOf(err) != Denied {
			t.Errorf("%s: %v, want Denied", c.Op, err)
		}
	}
	if d := cmp.Diff([]Route{foreign}, f.Routes(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("routes (-want +got):\n%s", d)
	}
}

func TestFakeLogsCalls(t *testing.T) {
	f := NewFake(FakeConfig{})
	changes := createOf(t, "rtb-1 10.244.1.0/24 > i-1", "rtb-9 10.244.1.0/24 > i-1")
	f.Apply(t.Context(), changes)
	f.Preflight(t.Context())
	var got []string
	for _, c := range f.Calls() {
		got = append(got, fmt.Sprintf("%s %s %v", c.Op, c.Change.Route.Table, c.Err == nil))
	}
	want := []string{"Apply  true", "create rtb-1 true", "create rtb-9 false", "Preflight  true"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}
