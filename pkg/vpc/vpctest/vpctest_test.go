package vpctest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
)

var (
	range4 = netip.MustParsePrefix("10.244.0.0/16")
	range6 = netip.MustParsePrefix("fd00:10::/48")
)

// A cloud is a Fake and the clock it lives by.
type cloud struct {
	*vpc.Fake
	now time.Time
}

func newCloud(c vpc.FakeConfig) *cloud {
	cloud := &cloud{now: time.Unix(1_000_000, 0)}
	c.Now = func() time.Time { return cloud.now }
	cloud.Fake = vpc.NewFake(c)
	return cloud
}

func harness(c vpc.FakeConfig) vpctest.Harness {
	cloud := newCloud(c)
	tables := c.Tables
	if tables == nil {
		tables = []string{"rtb-1"}
	}
	var nodes []vpc.Node
	for i := range 12 {
		nodes = append(nodes, vpc.Node{
			Name: fmt.Sprintf("node-%d", i), ProviderID: fmt.Sprintf("fake:///zone-a/i-%d", i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}), netip.MustParseAddr(fmt.Sprintf("fd00::%d", 10+i))},
		})
	}
	hops := func(n vpc.Node) []vpc.NextHop {
		if c.ByAddress {
			return []vpc.NextHop{vpc.NextHop(n.Addresses[0].String()), vpc.NextHop(n.Addresses[1].String())}
		}
		id := vpc.NextHop(n.ProviderID[strings.LastIndex(n.ProviderID, "/")+1:])
		return []vpc.NextHop{id, id}
	}
	dead := nodes[11]
	terminate := func(_ testing.TB, n vpc.Node) {
		for _, hop := range hops(n) {
			cloud.Terminate(hop)
		}
	}
	terminate(nil, dead)
	h := vpctest.Harness{
		Table: cloud.Fake, Tables: tables, Owner: c.Owner, Nodes: nodes[:11], Dead: dead,
		Lost: map[vpc.Family]vpc.NextHop{vpc.IPv4: hops(dead)[0], vpc.IPv6: hops(dead)[1]},
		Put:  func(_ testing.TB, r vpc.Route) { cloud.Put(r) },
		PutOdd: func(testing.TB) {
			cloud.Put(vpc.Route{Text: "pl-123456", NextHop: "vpce-1"})
			cloud.Put(vpc.Route{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: "igw-1"})
			cloud.Put(vpc.Route{Destination: netip.MustParsePrefix("10.0.0.0/24"), Owner: "another"})
		},
		Settle: func() { cloud.now = cloud.now.Add(c.Delay) },
		Max:    c.Max, OnePerNextHop: c.OnePerNextHop, Terminate: terminate,
		FailNext: func(_ testing.TB, class vpc.Class) bool {
			cloud.Inject(vpc.Fault{Op: vpc.OpCreate, Times: 1, Err: vpc.Errorf(class, "planted")})
			return true
		},
		LoseAnswer: func(testing.TB) {
			for _, op := range []string{vpc.OpCreate, vpc.OpReplace, vpc.OpDelete} {
				cloud.Inject(vpc.Fault{Op: op, Times: 1, Lost: true, Err: errors.New("connection reset")})
			}
		},
	}
	for _, r := range []netip.Prefix{range4, range6} {
		if c.Families == nil || slices.Contains(c.Families, vpc.FamilyOf(r)) {
			h.Ranges = append(h.Ranges, r)
		}
	}
	return h
}

func TestFakeKeepsTheContract(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config vpc.FakeConfig
	}{
		{"plain", vpc.FakeConfig{}},
		{"marks and handles", vpc.FakeConfig{Owner: "prod", IDs: true}},
		{"three tables", vpc.FakeConfig{Tables: []string{"rtb-a", "rtb-b", "rtb-c"}}},
		{"small table", vpc.FakeConfig{Max: 12}},
		{"next hops are addresses", vpc.FakeConfig{ByAddress: true, Owner: "prod"}},
		{"IPv4 only, one range per machine", vpc.FakeConfig{Families: []vpc.Family{vpc.IPv4}, OnePerNextHop: true, ByAddress: true}},
		{"IPv6 only", vpc.FakeConfig{Families: []vpc.Family{vpc.IPv6}}},
		{"visible late", vpc.FakeConfig{Delay: 5 * time.Second}},
		{"visible late, with marks and handles", vpc.FakeConfig{Delay: 5 * time.Second, Owner: "prod", IDs: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vpctest.Run(t, func(*testing.T) vpctest.Harness { return harness(tt.config) })
		})
	}
}

// A broken table does one thing wrong.
type broken struct {
	vpc.RouteTable
	fake    *vpc.Fake
	nextHop func(vpc.Node, vpc.NextHop, error) (vpc.NextHop, error)
	list    func([]vpc.Route) []vpc.Route
	change  func(*vpc.Change)
	answer  func(vpc.Change, error) error
	limits  func(*vpc.Limits)
	deaf    bool // to its context
	blind   bool // to what is in a destination
}

func (b broken) context(ctx context.Context) context.Context {
	if b.deaf {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (b broken) NextHop(ctx context.Context, n vpc.Node, f vpc.Family) (vpc.NextHop, error) {
	hop, err := b.RouteTable.NextHop(ctx, n, f)
	if b.nextHop != nil {
		hop, err = b.nextHop(n, hop, err)
	}
	return hop, err
}

func (b broken) List(ctx context.Context) ([]vpc.Route, error) {
	routes, err := b.RouteTable.List(b.context(ctx))
	if b.list != nil {
		routes = b.list(routes)
	}
	return routes, err
}

func (b broken) Limits(ctx context.Context) (vpc.Limits, error) {
	limits, err := b.RouteTable.Limits(b.context(ctx))
	if b.limits != nil {
		b.limits(&limits)
	}
	return limits, err
}

func (b broken) Apply(ctx context.Context, changes []vpc.Change) []error {
	changes = slices.Clone(changes)
	for i := range changes {
		if b.change != nil {
			b.change(&changes[i])
		}
		if b.blind {
			b.overwrite(&changes[i])
		}
	}
	errs := b.RouteTable.Apply(b.context(ctx), changes)
	for i, err := range errs {
		if b.answer != nil {
			errs[i] = b.answer(changes[i], err)
		}
	}
	return errs
}

// overwrite makes room as a cloud does whose calls name a destination only.
func (b broken) overwrite(c *vpc.Change) {
	if c.Op == vpc.Replace || c.Op == vpc.Delete {
		b.fake.Drop(func(r vpc.Route) bool { return r.Destination == c.Route.Destination && r.Table == c.Route.Table })
	}
}

func is(class vpc.Class) func(error) bool {
	return func(err error) bool { return err != nil && vpc.ClassOf(err) == class }
}

func swallow(match func(error) bool) func(vpc.Change, error) error {
	return func(_ vpc.Change, err error) error {
		if match(err) {
			return nil
		}
		return err
	}
}

// brokenTables are mistakes that providers make, by the test that has to notice.
var brokenTables = map[string]struct {
	broken
	config vpc.FakeConfig
	test   string
}{
	"next hop by name": {broken: broken{nextHop: func(n vpc.Node, _ vpc.NextHop, err error) (vpc.NextHop, error) {
		return vpc.NextHop(n.Name), err
	}}, test: "next_hop_follows_the_machine"},
	"next hop of nothing": {broken: broken{nextHop: func(_ vpc.Node, hop vpc.NextHop, _ error) (vpc.NextHop, error) {
		return hop, nil
	}}, test: "next_hop_of_a_node_that_lacks"},
	"exists is success": {broken: broken{answer: swallow(is(vpc.Exists))}, test: "a_create_where_the_destination_is_taken"},
	"exists is an error": {broken: broken{answer: func(c vpc.Change, err error) error {
		if err == nil && c.Op == vpc.Create && c.Route.Node == "node-0" && exists[c.Route.Destination] {
			return vpc.Errorf(vpc.Exists, "it is there")
		}
		exists[c.Route.Destination] = true
		return err
	}}, test: "a_repeated_change"},
	"one bad change stops all": {broken: broken{answer: func(_ vpc.Change, err error) error {
		return cmp.Or(err, stopped(err))
	}}, test: "a_batch_has_one_answer"},
	"host bits are cut off": {
		broken: broken{change: func(c *vpc.Change) { c.Route.Destination = c.Route.Destination.Masked() }},
		test:   "a_batch_has_one_answer",
	},
	"overwrites by destination": {broken: broken{blind: true}, test: "a_replace_does_not_overwrite"},
	"deletes by destination":    {broken: broken{blind: true}, test: "a_delete_removes_one_entry"},
	"no mark": {broken: broken{list: func(routes []vpc.Route) []vpc.Route {
		for i := range routes {
			routes[i].Owner = ""
		}
		return routes
	}}, config: vpc.FakeConfig{Owner: "prod"}, test: "created_routes_are_listed"},
	"hides blackholes": {broken: broken{list: func(routes []vpc.Route) []vpc.Route {
		return slices.DeleteFunc(routes, func(r vpc.Route) bool { return r.Blackhole })
	}}, test: "routes_to_a_vanished_machine"},
	"hides odd entries": {broken: broken{list: func(routes []vpc.Route) []vpc.Route {
		return slices.DeleteFunc(routes, func(r vpc.Route) bool { return r.NextHop == "" || !strings.HasPrefix(string(r.NextHop), "i-") })
	}}, test: "entries_of_strangers_and_odd"},
	"first page only": {broken: broken{list: func(routes []vpc.Route) []vpc.Route {
		return routes[:min(len(routes), 100)]
	}}, test: "many_routes_in_one_batch"},
	"counts nothing": {broken: broken{limits: func(l *vpc.Limits) { l.Tables[0].Used = 0 }}, test: "limits_count"},
	"quota is transient": {broken: broken{answer: func(_ vpc.Change, err error) error {
		if is(vpc.Quota)(err) {
			return errors.New("failed")
		}
		return err
	}}, config: vpc.FakeConfig{Max: 12}, test: "a_full_table"},
	"all is transient": {broken: broken{answer: func(_ vpc.Change, err error) error {
		if err != nil {
			return errors.New("failed")
		}
		return err
	}}, test: "errors_have_their_class"},
	"failures are success": {broken: broken{answer: func(vpc.Change, error) error { return nil }}, test: "errors_have_their_class"},
	"deaf to its context":  {broken: broken{deaf: true}, test: "a_cancelled_context"},
	"refuses nothing": {
		broken: broken{answer: swallow(is(vpc.Invalid))}, config: vpc.FakeConfig{Families: []vpc.Family{vpc.IPv4}},
		test: "what_the_cloud_cannot_route",
	},
	"loses its own writes": {broken: broken{list: func(routes []vpc.Route) []vpc.Route {
		return slices.DeleteFunc(routes, func(r vpc.Route) bool { return r.NextHop == "i-1" })
	}}, test: "two_nodes_swap"},
	"takes what is not its own": {broken: broken{list: func(routes []vpc.Route) []vpc.Route {
		for i := range routes {
			routes[i].Owner = "prod"
		}
		return routes
	}}, config: vpc.FakeConfig{Owner: "prod"}, test: "plans_and_their_application"},
}

var (
	exists  = map[netip.Prefix]bool{}
	failing error
)

// stopped remembers the first failure and answers with it from then on.
func stopped(err error) error {
	failing = cmp.Or(failing, err)
	return failing
}

const brokenEnv = "VPCROUTE_TEST_BROKEN"

// TestSuiteNoticesBrokenTables runs the suite on each broken table in a process
// of its own, where it has to fail in the named test.
func TestSuiteNoticesBrokenTables(t *testing.T) {
	if name := os.Getenv(brokenEnv); name != "" {
		b := brokenTables[name]
		vpctest.Run(t, func(*testing.T) vpctest.Harness {
			h := harness(b.config)
			wrapped := b.broken
			wrapped.RouteTable, wrapped.fake = h.Table, h.Table.(*vpc.Fake)
			h.Table = wrapped
			return h
		})
		return
	}
	for name, b := range brokenTables {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestSuiteNoticesBrokenTables$/^"+b.test, "-test.v")
			cmd.Env = append(os.Environ(), brokenEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestSuiteNoticesBrokenTables/"+b.test) {
				t.Errorf("not noticed: %v\n%s", err, out)
			}
		})
	}
}
