package routes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A cloud is a vpc.Fake behind a slow, rate-limited wire that can fail at
// random. Time is the test's.
type cloud struct {
	*vpc.Fake

	mu      sync.Mutex
	batch   int           // changes per call
	latency time.Duration // of a list and of a write
	hideMax bool          // Limits does not tell how many entries a table takes
	perSec  int           // calls in any second before it throttles; 0: any number
	hint    time.Duration // sent with Throttled
	// fault, when set, may fail a change or, with the zero Change, a list:
	// before it has an effect or, with lost, after.
	fault func(c vpc.Change) (lost bool, err error)
	// machine, when set, answers NextHop.
	machine func(n vpc.Node, f vpc.Family) (vpc.NextHop, error)
	// onWrite sees every change that is about to be made.
	onWrite func(c vpc.Change)

	calls  []cloudCall
	window []time.Time // of accepted calls in the last second
	busy   map[Place]int
	// overlaps are writes that began while another of their place was under way.
	overlaps []string
}

type cloudCall struct {
	at  time.Time
	op  string // of a call of List or NextHop, or of one change
	c   vpc.Change
	err error
}

const (
	list    = vpc.OpList
	resolve = vpc.OpNextHop
)

// newCloud makes a cloud that marks routes as "prod" and names machines by
// address; change may ask for another kind.
func newCloud(change func(*vpc.FakeConfig)) *cloud {
	config := vpc.FakeConfig{Owner: "prod", ByAddress: true}
	if change != nil {
		change(&config)
	}
	return &cloud{Fake: vpc.NewFake(config), busy: map[Place]int{}}
}

func (c *cloud) NextHop(ctx context.Context, n vpc.Node, f vpc.Family) (hop vpc.NextHop, err error) {
	c.mu.Lock()
	machine := c.machine
	c.mu.Unlock()
	if machine != nil {
		hop, err = machine(n, f)
	} else {
		hop, err = c.Fake.NextHop(ctx, n, f)
	}
	c.log(resolve, vpc.Change{}, err)
	return hop, err
}

func (c *cloud) Limits(ctx context.Context) (vpc.Limits, error) {
	l, err := c.Fake.Limits(ctx)
	l.Batch = c.batch
	for i := range l.Tables {
		if c.hideMax {
			l.Tables[i].Max = 0
		}
	}
	return l, err
}

func (c *cloud) List(ctx context.Context) ([]vpc.Route, error) {
	if err := c.enter(nil); err != nil {
		c.log(list, vpc.Change{}, err)
		return nil, err
	}
	_, err := c.fails(vpc.Change{})
	if err == nil {
		err = pause(ctx, c.latency)
	}
	if err != nil {
		c.log(list, vpc.Change{}, err)
		return nil, err
	}
	found, err := c.Fake.List(ctx)
	c.log(list, vpc.Change{}, err)
	return found, err
}

func (c *cloud) Apply(ctx context.Context, changes []vpc.Change) []error {
	var errs []error
	for chunk := range slices.Chunk(changes, max(1, c.batch)) {
		errs = append(errs, c.call(ctx, chunk)...)
	}
	return errs
}

// call is one call of several changes. One that is given up has its effect all
// the same.
func (c *cloud) call(ctx context.Context, changes []vpc.Change) []error {
	errs := make([]error, len(changes))
	refused := c.enter(changes)
	var late error
	if refused == nil {
		late = pause(ctx, c.latency)
	}
	if refused == nil {
		errs = c.together(changes, late)
	}
	for i, change := range changes {
		errs[i] = cmp.Or(errs[i], refused)
		c.log(string(change.Op), change, errs[i])
	}
	c.leave(changes)
	return errs
}

// together makes the changes of one call. The table sees them at once unless
// some of them may fail.
func (c *cloud) together(changes []vpc.Change, late error) []error {
	c.mu.Lock()
	sound := c.fault == nil && c.onWrite == nil
	c.mu.Unlock()
	if sound && late == nil {
		return c.Fake.Apply(context.Background(), changes)
	}
	errs := make([]error, len(changes))
	for i, change := range changes {
		errs[i] = c.change(change, late)
	}
	return errs
}

func (c *cloud) change(change vpc.Change, late error) error {
	lost, err := c.fails(change)
	if err != nil && !lost {
		return err
	}
	if c.onWrite != nil {
		c.onWrite(change)
	}
	return cmp.Or(c.Fake.Apply(context.Background(), []vpc.Change{change})[0], err, late)
}

// enter counts a call against the rate.
func (c *cloud) enter(changes []vpc.Change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		p := placeOf(change.Route)
		if c.busy[p]++; c.busy[p] > 1 {
			c.overlaps = append(c.overlaps, fmt.Sprint(change.Op, p))
		}
	}
	if c.perSec == 0 {
		return nil
	}
	now := time.Now()
	c.window = slices.DeleteFunc(c.window, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	if len(c.window) >= c.perSec {
		return &vpc.Error{Class: vpc.Throttled, RetryAfter: c.hint, Err: errors.New("rate exceeded")}
	}
	c.window = append(c.window, now)
	return nil
}

func (c *cloud) leave(changes []vpc.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		c.busy[placeOf(change.Route)]--
	}
}

func (c *cloud) fails(change vpc.Change) (lost bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		return false, nil
	}
	return c.fault(change)
}

func (c *cloud) log(op string, change vpc.Change, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, cloudCall{time.Now(), op, change, err})
}

// set changes the cloud's behaviour while it is at work.
func (c *cloud) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// did returns the calls of some operations, or of all.
func (c *cloud) did(ops ...string) []cloudCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []cloudCall
	for _, call := range c.calls {
		if len(ops) == 0 || slices.Contains(ops, call.op) {
			found = append(found, call)
		}
	}
	return found
}

func (c *cloud) wrote() []cloudCall { return c.did("create", "replace", "delete") }

// rejected are the calls that the rate refused.
func (c *cloud) rejected() (n int) {
	for _, call := range c.did() {
		if call.err != nil && vpc.ClassOf(call.err) == vpc.Throttled {
			n++
		}
	}
	return n
}

// text is what the tables really hold, one "destination hop" a line.
func (c *cloud) text() []string {
	lines := []string{}
	for _, r := range c.Routes() {
		line := fmt.Sprintf("%s %s", r.Destination, r.NextHop)
		if r.Table != "rtb-1" {
			line = r.Table + " " + line
		}
		if r.Owner != "" && r.Owner != "prod" {
			line += " of " + r.Owner
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func (c *cloud) remove(dest string) {
	c.Drop(func(r vpc.Route) bool { return r.Destination.String() == dest })
}

// A shelf is a Ledger that outlives the engine that wrote it.
type shelf struct {
	mu      sync.Mutex
	entries map[entryKey]Entry
	fail    func(forget bool, e Entry) error
	writes  int
}

func newShelf() *shelf { return &shelf{entries: map[entryKey]Entry{}} }

func (s *shelf) Load(context.Context) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.entries)), nil
}

func (s *shelf) Record(_ context.Context, entries []Entry) []error {
	return s.change(entries, false)
}

func (s *shelf) Forget(_ context.Context, entries []Entry) []error {
	return s.change(entries, true)
}

func (s *shelf) change(entries []Entry, forget bool) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(entries))
	for i, e := range entries {
		if s.fail != nil {
			if errs[i] = s.fail(forget, e); errs[i] != nil {
				continue
			}
		}
		s.writes++
		if forget {
			delete(s.entries, keyOf(e))
		} else {
			s.entries[keyOf(e)] = e
		}
	}
	return errs
}

// proves is true when the shelf has the proof that a route is ours.
func (s *shelf) proves(r vpc.Route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.Table == r.Table && e.Destination == r.Destination && slices.Contains(e.hops(), r.NextHop) {
			return true
		}
	}
	return false
}

func (s *shelf) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// A notebook is an Observer that keeps everything.
type notebook struct {
	mu     sync.Mutex
	routes map[entryKey]RouteStatus
	nodes  map[string]NodeStatus
	events []Event
	told   int // reports of routes and nodes
}

func newNotebook() *notebook {
	return &notebook{routes: map[entryKey]RouteStatus{}, nodes: map[string]NodeStatus{}}
}

func (n *notebook) Route(s RouteStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told++
	key := entryKey{s.Node, Place{s.Table, s.Destination}}
	if s.State == Gone {
		delete(n.routes, key)
		return
	}
	n.routes[key] = s
}

func (n *notebook) Node(s NodeStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told++
	if s.Gone {
		delete(n.nodes, s.Node)
		return
	}
	n.nodes[s.Node] = s
}

func (n *notebook) Event(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

func (n *notebook) count(kind EventKind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := 0
	for _, e := range n.events {
		if e.Kind == kind {
			found++
		}
	}
	return found
}

func (n *notebook) node(name string) NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[name]
}

// route is the status of a node's route to one range in the first table.
func (n *notebook) route(node, dest string) RouteStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range n.routes {
		if key.node == node && (dest == "" && !key.Destination.IsValid() || key.Destination.String() == dest) {
			return s
		}
	}
	return RouteStatus{}
}

// A rig is an engine with all that it needs.
type rig struct {
	t      *testing.T
	cloud  *cloud
	shelf  *shelf
	notes  *notebook
	config Config
	engine *Engine
	stop   func()
}

var testRanges = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}

// newRig makes a rig around a cloud that change may make another kind of.
func newRig(t *testing.T, change func(*vpc.FakeConfig)) *rig {
	t.Helper()
	r := &rig{t: t, cloud: newCloud(change), shelf: newShelf(), notes: newNotebook()}
	r.config = Config{Table: r.cloud, Ledger: r.shelf, Owner: "prod", Ranges: testRanges}
	return r
}

// start runs a new engine until stop or the end of the test.
func (r *rig) start(nodes ...Node) {
	r.t.Helper()
	r.config.Observer = r.notes
	e, err := New(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.engine = e
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := e.Run(ctx); err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	if nodes != nil {
		e.SetNodes(nodes)
	}
}

// node makes a Node "n7" with range 10.244.7.0/24 and address 172.31.0.7, made
// 7 minutes after the first.
func node(i int) Node {
	return Node{
		Node: vpc.Node{
			Name:      fmt.Sprintf("n%d", i),
			UID:       fmt.Sprintf("uid-%d", i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 31, byte(i >> 8), byte(i)})},
		},
		PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i)},
		Created:  time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC),
	}
}

func nodes(from, to int) []Node {
	var list []Node
	for i := from; i <= to; i++ {
		list = append(list, node(i))
	}
	return list
}

// with returns a changed copy of a Node.
func (n Node) with(f func(*Node)) Node {
	n.PodCIDRs, n.Addresses = slices.Clone(n.PodCIDRs), slices.Clone(n.Addresses)
	f(&n)
	return n
}

func routeTo(table, dest, hop, owner string) vpc.Route {
	return vpc.Route{Table: table, Destination: netip.MustParsePrefix(dest), NextHop: vpc.NextHop(hop), Owner: owner}
}
