package tencent_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

const (
	theVPC     = "vpc-1"
	theCluster = "cls-1"
	theTable   = "rtb-main"
	farTable   = "rtb-far"
)

var (
	clusterCIDR = netip.MustParsePrefix("10.244.0.0/16")
	bothModes   = []tencent.Mode{tencent.GlobalRoute, tencent.VPC}
)

func addrs(texts ...string) (addresses []netip.Addr) {
	for _, s := range texts {
		addresses = append(addresses, netip.MustParseAddr(s))
	}
	return addresses
}

func bodyOf(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// A world is an emulated account: one VPC with two subnets, each with a route
// table of its own, and a cluster route table.
type world struct {
	*emulated.Emulator
	config tencent.Config
}

func newWorld(mode tencent.Mode, options ...func(*emulated.Options)) *world {
	o := emulated.Defaults()
	for _, f := range options {
		f(&o)
	}
	e := emulated.New(o)
	e.AddVPC(theVPC, netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"))
	e.AddTable(theVPC, theTable, map[string]string{"vpcroute": "yes"})
	e.AddTable(theVPC, farTable, nil)
	e.AddSubnet(theVPC, "subnet-near", netip.MustParsePrefix("10.0.0.0/18"), theTable)
	e.AddSubnet(theVPC, "subnet-far", netip.MustParsePrefix("10.1.0.0/18"), farTable)
	w := &world{Emulator: e, config: tencent.Config{
		Mode: mode, Region: o.Region, VpcID: theVPC, Owner: theCluster, ClusterCIDRs: []netip.Prefix{clusterCIDR},
		Credentials: tencent.StaticCredentials(o.SecretID, tencent.NewSecret(o.SecretKey), tencent.Secret{}),
		Endpoint:    tencent.Endpoint{URL: "http://tencent.test", Transport: cloud.Direct(e)},
		Version:     "0.0.0-test",
		// Tests that do not look at the pace need not wait for it.
		WritesPerSecond: 1e6,
	}}
	if mode == tencent.GlobalRoute {
		e.AddClusterTable(theCluster, theVPC, clusterCIDR)
	} else {
		w.config.Tables = []string{theTable}
	}
	return w
}

// listen puts the emulator behind a socket.
func (w *world) listen(t *testing.T) {
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.config.Endpoint = tencent.Endpoint{URL: server.URL}
}

// table opens the table and forgets the calls that took.
func (w *world) table(t *testing.T) vpc.RouteTable {
	t.Helper()
	table, err := tencent.New(t.Context(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.Forget()
	return table
}

// name is the table that a mode's routes go to.
func (w *world) name() string {
	if w.config.Mode == tencent.GlobalRoute {
		return theCluster
	}
	return theTable
}

// routes lists what the emulator's table holds, as "destination gateway".
func (w *world) routes() []string {
	if w.config.Mode == tencent.GlobalRoute {
		return slices.Sorted(slices.Values(w.ClusterRoutes(theCluster)))
	}
	return w.vpcRoutes(theTable)
}

func (w *world) vpcRoutes(table string) (lines []string) {
	for _, r := range w.Routes(table) {
		line := r.DestinationCidrBlock + " " + r.GatewayId
		if r.Enabled != nil && !*r.Enabled {
			line += " off"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// address and podCIDR are those of machine i: 10.0.0.(i+10) and 10.244.i.0/24,
// for i below 256.
func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte((i + 10) / 256), byte((i + 10) % 256)})
}

func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}

func hop(i int) vpc.NextHop { return vpc.NextHop(address(i).String()) }

func node(i int) vpc.Node {
	return vpc.Node{
		Name: fmt.Sprintf("node-%d", i), ProviderID: fmt.Sprintf("qcloud:///100003/ins-%08d", i), Addresses: []netip.Addr{address(i)},
	}
}

func (w *world) startMachines(numbers ...int) {
	var addresses []netip.Addr
	for _, i := range numbers {
		addresses = append(addresses, address(i))
	}
	w.AddMachines(theVPC, addresses...)
}

// route is the one of machine i in the world's table.
func (w *world) route(i int) vpc.Route {
	return vpc.Route{Table: w.name(), Destination: podCIDR(i), NextHop: hop(i), Owner: theCluster}
}

func (w *world) create(i int) vpc.Change { return vpc.Change{Op: vpc.Create, Route: w.route(i)} }

// apply makes changes that must all succeed.
func apply(t *testing.T, table vpc.RouteTable, changes ...vpc.Change) {
	t.Helper()
	for i, err := range table.Apply(t.Context(), changes) {
		if err != nil {
			t.Fatalf("change %d (%s %s): %v", i, changes[i].Op, changes[i].Route.Destination, err)
		}
	}
}

// listed finds a listed route by its destination.
func listed(t *testing.T, table vpc.RouteTable, d netip.Prefix) vpc.Route {
	t.Helper()
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(routes, func(r vpc.Route) bool { return r.Destination == d })
	if i < 0 {
		t.Fatalf("%s is not listed in %v", d, routes)
	}
	return routes[i]
}

// resync is one pass of a controller: next hops, list, plan, apply.
func resync(ctx context.Context, table vpc.RouteTable, nodes map[netip.Prefix]vpc.Node) (vpc.Diff, error) {
	var desired []vpc.Route
	for d, n := range nodes {
		hop, err := table.NextHop(ctx, n, vpc.FamilyOf(d))
		if err != nil {
			return vpc.Diff{}, err
		}
		desired = append(desired, vpc.Route{Destination: d, NextHop: hop, Node: n.Name})
	}
	actual, err := table.List(ctx)
	if err != nil {
		return vpc.Diff{}, err
	}
	limits, err := table.Limits(ctx)
	if err != nil {
		return vpc.Diff{}, err
	}
	rules := vpc.Rules{Owner: theCluster, Ranges: []netip.Prefix{clusterCIDR}, MaxDeletes: -1, Room: map[string]int{}}
	for _, l := range limits.Tables {
		rules.Tables = append(rules.Tables, l.Table)
		if l.Max > 0 {
			rules.Room[l.Table] = l.Max - l.Used
		}
	}
	diff := vpc.Plan(desired, actual, rules)
	for i, e := range table.Apply(ctx, diff.Changes) {
		if e != nil && err == nil {
			err = fmt.Errorf("%s: %w", diff.Changes[i].Reason, e)
		}
	}
	return diff, err
}
