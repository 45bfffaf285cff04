package azure_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

const (
	theGroup   = "Net"
	theNetwork = "vnet"
	theCluster = "prod-1"
	theTable   = "routes-near"
	farTable   = "routes-far"
)

var (
	clusterCIDR  = netip.MustParsePrefix("10.244.0.0/16")
	clusterCIDR6 = netip.MustParsePrefix("fd00:10::/48")
)

func addrs(texts ...string) (addresses []netip.Addr) {
	for _, s := range texts {
		addresses = append(addresses, netip.MustParseAddr(s))
	}
	return addresses
}

// A world is an emulated subscription: one network with two subnets, each with a
// route table of its own.
type world struct {
	*emulated.Emulator
	config azure.Config
}

func newWorld(options ...func(*emulated.Options)) *world {
	o := emulated.Defaults()
	for _, f := range options {
		f(&o)
	}
	e := emulated.New(o)
	e.AddTable(theGroup, theTable, map[string]string{"cluster": "prod"})
	e.AddTable(theGroup, farTable, nil)
	e.AddNetwork(theGroup, theNetwork, netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48"))
	w := &world{Emulator: e}
	e.AddSubnet(theGroup, theNetwork, "near", w.tableID(theTable), netip.MustParsePrefix("10.0.0.0/18"), netip.MustParsePrefix("fd00:1::/64"))
	e.AddSubnet(theGroup, theNetwork, "far", w.tableID(farTable), netip.MustParsePrefix("10.1.0.0/18"))
	w.config = azure.Config{
		SubscriptionID: o.Subscription, ResourceGroup: theGroup, Tables: []string{theTable},
		Owner: theCluster, ClusterCIDRs: []netip.Prefix{clusterCIDR, clusterCIDR6},
		Credential: static(e.Token()),
		Endpoint:   azure.Endpoint{URL: "https://azure.test", Transport: cloud.Direct(e)},
		Version:    "0.0.0-test",
		// The SDK lets tests ask sooner than it lets programs.
		PollInterval: time.Millisecond,
	}
	return w
}

// static is a token that never changes.
type static string

func (s static) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func (w *world) tableID(name string) string {
	return w.ID(theGroup, "Microsoft.Network/routeTables", name)
}

func (w *world) near() string { return w.SubnetID(theGroup, theNetwork, "near") }
func (w *world) far() string  { return w.SubnetID(theGroup, theNetwork, "far") }

// table opens the table and forgets the calls that took.
func (w *world) table(t *testing.T) vpc.RouteTable {
	t.Helper()
	table, err := azure.New(t.Context(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.Forget()
	return table
}

// routes lists what the emulator's table holds, as "destination next-hop".
func (w *world) routes(table string) (lines []string) {
	for _, r := range w.Routes(table) {
		lines = append(lines, r.AddressPrefix+" "+r.NextHopIPAddress)
	}
	slices.Sort(lines)
	return lines
}

// address and podCIDR are those of machine i: 10.0.0.(i+10) and 10.244.i.0/24.
func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte((i + 10) / 256), byte((i + 10) % 256)})
}

func address6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:1::%x", i+10)) }

func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}

func hop(i int) vpc.NextHop { return vpc.NextHop(address(i).String()) }

func vmName(i int) string { return fmt.Sprintf("vm-%d", i) }

func (w *world) node(i int) vpc.Node {
	return vpc.Node{
		Name:       fmt.Sprintf("node-%d", i),
		ProviderID: "azure://" + w.ID(theGroup, "Microsoft.Compute/virtualMachines", vmName(i)),
		Addresses:  []netip.Addr{address(i), address6(i)},
	}
}

func (w *world) startMachines(numbers ...int) {
	for _, i := range numbers {
		w.AddMachine(theGroup, vmName(i), w.near(), address(i), address6(i))
	}
}

func numbers(from, to int) (n []int) {
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

// route is the one of machine i in the near table.
func (w *world) route(i int) vpc.Route {
	return vpc.Route{Table: theTable, Destination: podCIDR(i), NextHop: hop(i), Owner: theCluster}
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
			hop = "" // what is there stays, as in the controller
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
	rules := vpc.Rules{Owner: theCluster, Ranges: []netip.Prefix{clusterCIDR, clusterCIDR6}, MaxDeletes: -1, Room: map[string]int{}}
	for _, l := range limits.Tables {
		rules.Tables = append(rules.Tables, l.Table)
		rules.Room[l.Table] = l.Max - l.Used
	}
	diff := vpc.Plan(desired, actual, rules)
	for i, e := range table.Apply(ctx, diff.Changes) {
		if e != nil && err == nil {
			err = fmt.Errorf("%s: %w", diff.Changes[i].Reason, e)
		}
	}
	return diff, err
}
