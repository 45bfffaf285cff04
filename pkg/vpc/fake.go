package vpc

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// FakeConfig says what kind of cloud a Fake is. The zero value is one table
// "rtb-1" without limit, marks, delays or handles, for both families.
type FakeConfig struct {
	// Tables are the ids of the managed tables.
	Tables []string
	// Owner is the mark that List shows on the routes that Apply made; empty for
	// a cloud that cannot mark routes.
	Owner string
	// Families are those that the cloud can route to a node.
	Families []Family
	// Max is the largest number of entries in a table; 0 means no limit.
	Max int
	// ByAddress makes a next hop the node's address, as in clouds that name no
	// machines; otherwise it is the last part of the node's provider ID.
	ByAddress bool
	// OnePerNextHop refuses a second destination for one next hop in a table.
	// Replaces in a ring are made by deleting before creating.
	OnePerNextHop bool
	// IDs gives every entry a handle.
	IDs bool
	// Delay is how long List does not show what Apply did.
	Delay time.Duration
	// Now is the clock for Delay; nil means time.Now.
	Now func() time.Time
	// Findings are what Preflight returns.
	Findings []Finding
}

// The operations of a Fake's Fault and FakeCall: its methods, and the changes
// that Apply makes.
const (
	OpNextHop   = "NextHop"
	OpList      = "List"
	OpApply     = "Apply"
	OpLimits    = "Limits"
	OpPreflight = "Preflight"
	OpCreate    = string(Create)
	OpReplace   = string(Replace)
	OpDelete    = string(Delete)
)

// A Fault is something that goes wrong in a Fake.
type Fault struct {
	// Op is the operation it concerns. OpApply concerns a whole batch, OpCreate,
	// OpReplace and OpDelete a single change.
	Op string
	// Destination limits it to changes of one destination, unless it is zero.
	Destination netip.Prefix
	// Skip is how many matching calls are left alone first.
	Skip int
	// Times is how many calls it then concerns; 0 means all.
	Times int
	// Err is the answer, for example of Errorf; nil lets the call through.
	Err error
	// Lost makes the write happen all the same: only its answer is Err.
	Lost bool
	// Wait holds the call back until it is closed or the context ends.
	Wait <-chan struct{}
}

// A FakeCall is one call that a Fake got.
type FakeCall struct {
	// Op is the operation; a change of a batch follows its OpApply.
	Op string
	// Change is what was asked for, where Op is a change.
	Change Change
	// Err is the answer, nil for success.
	Err error
}

// A Fake is a RouteTable in memory that validates as a cloud does, for tests. It
// starts no goroutines. It refuses to write an entry that is marked as another
// owner's.
type Fake struct {
	config FakeConfig

	mu      sync.Mutex
	entries []fakeEntry
	dead    map[NextHop]bool
	faults  []*Fault
	calls   []FakeCall
	serial  int
}

var _ RouteTable = (*Fake)(nil)

// A fakeEntry is shown by List from one time until another.
type fakeEntry struct {
	Route
	from, until time.Time // until is zero for an entry that is there
}

// NewFake returns an empty Fake.
func NewFake(c FakeConfig) *Fake {
	if len(c.Tables) == 0 {
		c.Tables = []string{"rtb-1"}
	}
	if len(c.Families) == 0 {
		c.Families = []Family{IPv4, IPv6}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Fake{config: c, dead: map[NextHop]bool{}}
}

// Put puts an entry into the table behind everyone's back, as a stranger or an
// operator would: anything goes. An empty Table means the first.
func (f *Fake) Put(r Route) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Table = cmp.Or(r.Table, f.config.Tables[0])
	f.insert(r, time.Time{})
}

// Drop removes the entries that match behind everyone's back and returns how
// many there were.
func (f *Fake) Drop(match func(Route) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.entries)
	f.entries = slices.DeleteFunc(f.entries, func(e fakeEntry) bool { return match(e.Route) })
	return before - len(f.entries)
}

// Routes returns what is really in the tables, shown by List or not, in order
// of table and destination.
func (f *Fake) Routes() []Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.routes(func(e fakeEntry) bool { return e.until.IsZero() })
}

// Settle makes List show what is really there.
func (f *Fake) Settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = slices.DeleteFunc(f.entries, func(e fakeEntry) bool { return !e.until.IsZero() })
	for i := range f.entries {
		f.entries[i].from = time.Time{}
	}
}

// Terminate makes the machine behind a next hop vanish: its routes become
// blackholes, and new ones are refused.
func (f *Fake) Terminate(hop NextHop) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[hop] = true
}

// Start brings the machine behind a next hop back.
func (f *Fake) Start(hop NextHop) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.dead, hop)
}

// Inject adds a fault. Of several that match a call, the first one counts that
// is neither skipping nor used up.
func (f *Fake) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Times == 0 {
		fault.Times = -1
	}
	f.faults = append(f.faults, &fault)
}

// Heal removes all faults.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Calls returns the calls so far, in the order of their answers.
func (f *Fake) Calls() []FakeCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Count returns how many calls of the given operations there were.
func (f *Fake) Count(ops ...string) (n int) {
	for _, c := range f.Calls() {
		if slices.Contains(ops, c.Op) {
			n++
		}
	}
	return n
}

// NextHop names a node as the configuration says.
func (f *Fake) NextHop(ctx context.Context, node Node, family Family) (NextHop, error) {
	if err := f.begin(ctx, OpNextHop); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	hop, err := f.nextHop(node, family)
	f.log(FakeCall{Op: OpNextHop, Err: err})
	return hop, err
}

func (f *Fake) nextHop(node Node, family Family) (NextHop, error) {
	if !slices.Contains(f.config.Families, family) {
		return "", Errorf(Invalid, "this cloud routes no %v", family)
	}
	id := node.ProviderID
	if f.config.ByAddress {
		id = ""
		if addr := node.Address(family); addr.IsValid() {
			id = addr.String()
		}
	}
	hop := NextHop(id[strings.LastIndex(id, "/")+1:])
	switch {
	case hop == "":
		return "", Errorf(Invalid, "node %s has neither provider ID nor %v address to find its machine by", node.Name, family)
	case f.dead[hop]:
		return "", Errorf(NotFound, "no machine %s for node %s", hop, node.Name)
	}
	return hop, nil
}

// List shows what the tables hold, as of Delay ago.
func (f *Fake) List(ctx context.Context) ([]Route, error) {
	if err := f.begin(ctx, OpList); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.config.Now()
	f.entries = slices.DeleteFunc(f.entries, func(e fakeEntry) bool { return !e.until.IsZero() && !now.Before(e.until) })
	f.log(FakeCall{Op: OpList})
	return f.routes(func(e fakeEntry) bool { return !now.Before(e.from) }), nil
}

func (f *Fake) routes(shown func(fakeEntry) bool) []Route {
	var routes []Route
	for _, e := range f.entries {
		if r := e.Route; shown(e) {
			r.Blackhole = r.Blackhole || f.dead[r.NextHop]
			routes = append(routes, r)
		}
	}
	slices.SortFunc(routes, compareRoutes)
	return routes
}

// Limits counts the entries.
func (f *Fake) Limits(ctx context.Context) (Limits, error) {
	if err := f.begin(ctx, OpLimits); err != nil {
		return Limits{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log(FakeCall{Op: OpLimits})
	limits := Limits{Families: slices.Clone(f.config.Families)}
	for _, table := range f.config.Tables {
		limits.Tables = append(limits.Tables, TableLimits{Table: table, Used: f.used(table), Max: f.config.Max})
	}
	return limits, nil
}

func (f *Fake) used(table string) (n int) {
	for _, e := range f.entries {
		if e.Table == table && e.until.IsZero() {
			n++
		}
	}
	return n
}

// Preflight returns the configured findings.
func (f *Fake) Preflight(context.Context) []Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log(FakeCall{Op: OpPreflight})
	return slices.Clone(f.config.Findings)
}

// Apply makes the changes one by one.
func (f *Fake) Apply(ctx context.Context, changes []Change) []error {
	errs := make([]error, len(changes))
	err := ctx.Err()
	var lost error
	if fault := f.fault(OpApply, netip.Prefix{}); err == nil && fault != nil {
		err = fault.hold(ctx)
		if err == nil && fault.Lost {
			lost = fault.Err
		} else {
			err = cmp.Or(err, fault.Err)
		}
	}
	f.mu.Lock()
	f.log(FakeCall{Op: OpApply, Err: cmp.Or(err, lost)})
	f.mu.Unlock()
	for i, change := range changes {
		if errs[i] = err; err == nil {
			errs[i] = cmp.Or(f.change(ctx, change, changes[i+1:]), lost)
		}
	}
	return errs
}

// change makes one change of a batch, with the faults that concern it.
func (f *Fake) change(ctx context.Context, c Change, later []Change) (err error) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.log(FakeCall{Op: string(c.Op), Change: c, Err: err})
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	fault := f.fault(string(c.Op), c.Route.Destination)
	if fault != nil {
		if err := fault.hold(ctx); err != nil {
			return err
		}
		if fault.Err != nil && !fault.Lost {
			return fault.Err
		}
	}
	f.mu.Lock()
	if f.config.OnePerNextHop && c.Op == Replace {
		f.breakRing(c.Route, later)
	}
	err = f.write(c)
	f.mu.Unlock()
	if err != nil {
		return &Error{Class: ClassOf(err), Op: fmt.Sprintf("%s %v in %s", c.Op, c.Route.Destination, c.Route.Table), Err: err}
	}
	if fault != nil {
		return fault.Err
	}
	return nil
}

// begin answers for a call that fails before it does anything.
func (f *Fake) begin(ctx context.Context, op string) error {
	err := ctx.Err()
	if fault := f.fault(op, netip.Prefix{}); err == nil && fault != nil {
		err = cmp.Or(fault.hold(ctx), fault.Err)
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.log(FakeCall{Op: op, Err: err})
	}
	return err
}

// fault returns the fault that concerns a call, nil for none, and counts it.
func (f *Fake) fault(op string, destination netip.Prefix) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.faults {
		if fault.Op != op || fault.Times == 0 || fault.Destination.IsValid() && fault.Destination != destination {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		if fault.Times > 0 {
			fault.Times--
		}
		return fault
	}
	return nil
}

// hold waits as long as the fault wants.
func (f *Fault) hold(ctx context.Context) error {
	if f.Wait == nil {
		return nil
	}
	select {
	case <-f.Wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Fake) log(c FakeCall) { f.calls = append(f.calls, c) }

// write makes one change to the truth.
func (f *Fake) write(c Change) error {
	if !slices.Contains(f.config.Tables, c.Route.Table) {
		return Errorf(NotFound, "no table %q", c.Route.Table)
	}
	switch c.Op {
	case Create:
		return f.create(c.Route, -1)
	case Replace:
		return f.replace(c.Route, c.Old)
	case Delete:
		return f.delete(c.Route)
	default:
		return Errorf(Invalid, "unknown operation %q", c.Op)
	}
}

// create puts a route in place of the entry at index old, or beside all others
// when that is negative.
func (f *Fake) create(want Route, old int) error {
	if err := f.validate(want); err != nil {
		return err
	}
	for i, e := range f.entries {
		if i == old || e.Table != want.Table || !e.until.IsZero() {
			continue
		}
		switch {
		case e.Destination == want.Destination && e.NextHop == want.NextHop && e.Owner == f.config.Owner:
			if old >= 0 {
				f.retire(old)
			}
			return nil
		case e.Destination == want.Destination && old < 0:
			return Errorf(Exists, "the table has an entry to %s already", cmp.Or(e.NextHop, "an unnamed next hop"))
		case e.NextHop == want.NextHop && f.config.OnePerNextHop:
			return Errorf(Exists, "next hop %s has %v already", e.NextHop, e.Destination)
		}
	}
	if f.config.Max > 0 && old < 0 && f.used(want.Table) >= f.config.Max {
		return Errorf(Quota, "the table holds %d entries, its maximum", f.config.Max)
	}
	if old >= 0 {
		f.retire(old)
	}
	f.insert(Route{
		Table: want.Table, Destination: want.Destination, NextHop: want.NextHop, Owner: f.config.Owner,
	}, f.config.Now().Add(f.config.Delay))
	return nil
}

func (f *Fake) validate(r Route) error {
	switch {
	case !canonical(r.Destination):
		return Errorf(Invalid, "destination %v is not a range such as 10.244.1.0/24", r.Destination)
	case !slices.Contains(f.config.Families, FamilyOf(r.Destination)):
		return Errorf(Invalid, "this cloud routes no %v", FamilyOf(r.Destination))
	case r.NextHop == "":
		return Errorf(Invalid, "no next hop")
	case f.dead[r.NextHop]:
		return Errorf(NotFound, "no machine %s", r.NextHop)
	}
	return nil
}

func (f *Fake) insert(r Route, from time.Time) {
	f.serial++
	if f.config.IDs && r.ID == "" {
		r.ID = fmt.Sprintf("route-%d", f.serial)
	}
	f.entries = append(f.entries, fakeEntry{Route: r, from: from})
}

// retire removes the entry at an index; List shows it until Delay has passed.
func (f *Fake) retire(i int) {
	f.entries[i].until = f.config.Now().Add(f.config.Delay)
	if f.config.Delay == 0 {
		f.entries = slices.Delete(f.entries, i, i+1)
	}
}

func (f *Fake) replace(want, old Route) error {
	i, err := f.find(old)
	if err != nil {
		return err
	}
	return f.create(want, i)
}

// breakRing frees the next hop of a wanted route where a later change of the
// batch will replace the entry that has it: two nodes swapped their ranges.
func (f *Fake) breakRing(want Route, later []Change) {
	for _, c := range later {
		if c.Op != Replace || c.Old.Table != want.Table || c.Old.NextHop != want.NextHop {
			continue
		}
		if i, err := f.find(c.Old); err == nil && i >= 0 {
			f.retire(i)
		}
	}
}

func (f *Fake) delete(r Route) error {
	i, err := f.find(r)
	if err == nil && i >= 0 {
		f.retire(i)
	}
	return err
}

// find returns the index of an entry as it was listed, -1 when it is gone.
func (f *Fake) find(r Route) (int, error) {
	i := slices.IndexFunc(f.entries, func(e fakeEntry) bool {
		return placeOf(e.Route) == placeOf(r) && e.NextHop == r.NextHop && e.until.IsZero() && (r.ID == "" || e.ID == r.ID)
	})
	if i >= 0 && f.entries[i].Owner != f.config.Owner {
		return -1, Errorf(Denied, "the entry to %s belongs to another owner (%q)", r.NextHop, f.entries[i].Owner)
	}
	return i, nil
}
