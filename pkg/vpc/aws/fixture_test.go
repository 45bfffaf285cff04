package aws_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
)

const (
	theVPC     = "vpc-1"
	theCluster = "cls-1"
	theTable   = "rtb-near"
	farTable   = "rtb-far"
	mainTable  = "rtb-main"
)

var (
	clusterCIDR  = netip.MustParsePrefix("10.244.0.0/16")
	clusterCIDR6 = netip.MustParsePrefix("fd00:10:244::/48")
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addrs(texts ...string) (addresses []netip.Addr) {
	for _, s := range texts {
		addresses = append(addresses, netip.MustParseAddr(s))
	}
	return addresses
}

func numbers(from, to int) (all []int) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

// A world is an emulated account: one VPC with two subnets that have a table of
// their own each, and one that uses the main table.
type world struct {
	*emulated.Emulator
	config aws.Config
	ledger []vpc.Route // what pkg/routes would know to be ours
}

func newWorld(options ...func(*emulated.Options)) *world {
	o := emulated.Defaults()
	for _, f := range options {
		f(&o)
	}
	e := emulated.New(o)
	e.AddVPC(theVPC, mainTable, prefix("10.0.0.0/16"), prefix("10.1.0.0/16"), prefix("fd00:a::/56"))
	e.AddTable(theVPC, theTable, map[string]string{"vpcroute": "yes"})
	e.AddTable(theVPC, farTable, nil)
	e.AddSubnet(theVPC, "subnet-near", prefix("10.0.0.0/18"), theTable)
	e.AddSubnet(theVPC, "subnet-far", prefix("10.1.0.0/18"), farTable)
	return &world{Emulator: e, config: aws.Config{
		Account: aws.StaticAccount(o.Region, o.AccessKeyID, o.SecretAccessKey, o.Token),
		VpcID:   theVPC, Owner: theCluster, ClusterCIDRs: []netip.Prefix{clusterCIDR, clusterCIDR6},
		Tables: []string{theTable}, RoutesPerTable: o.RoutesPerTable,
		Endpoint: "http://ec2.test", Transport: cloud.Direct(e), Version: "0.0.0-test",
		// Tests that do not look at the pace need not wait for it.
		WritesPerSecond: 1e6,
	}}
}

// listen puts the emulator behind a socket.
func (w *world) listen(t *testing.T) {
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.config.Endpoint, w.config.Transport = server.URL, nil
}

// table opens the table and forgets the calls that took.
func (w *world) table(t *testing.T) vpc.RouteTable {
	t.Helper()
	table, err := aws.New(t.Context(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.Forget()
	return table
}

// routes lists what was made by hand in a table, as "destination interface".
func (w *world) routes(table string) (lines []string) {
	for _, r := range w.Routes(table) {
		if r.Origin == "CreateRoute" && r.NetworkInterfaceID != "" {
			lines = append(lines, r.DestinationCidrBlock+r.DestinationIpv6CidrBlock+" "+r.NetworkInterfaceID)
		}
	}
	slices.Sort(lines)
	return lines
}

// address, podCIDR, instance and hop are those of machine i: 10.0.0.(i+10),
// 10.244.i.0/24, i-…i and eni-i, for i below 256.
func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte((i + 10) / 256), byte((i + 10) % 256)})
}

func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}

func instance(i int) string { return fmt.Sprintf("i-%08x", i) }
func hop(i int) vpc.NextHop { return vpc.NextHop(fmt.Sprintf("eni-%d", i)) }
func node(i int) vpc.Node {
	return vpc.Node{
		Name: fmt.Sprintf("node-%d", i), ProviderID: "aws:///eu-central-1a/" + instance(i), Addresses: []netip.Addr{address(i)},
	}
}

func (w *world) startMachines(numbers ...int) { w.startChecked(false, numbers...) }

// startChecked starts machines whose source and destination check is on or off.
func (w *world) startChecked(check bool, numbers ...int) {
	var all []emulated.Interface
	for _, i := range numbers {
		six := netip.MustParseAddr(fmt.Sprintf("fd00:a::%x", i+10))
		all = append(all, emulated.Interface{ID: string(hop(i)), Subnet: "subnet-near", Instance: instance(i), Addresses: []netip.Addr{address(i), six}, Check: check})
	}
	w.AddInterfaces(all...)
}

// startFar starts machine 250 in the far subnet.
func (w *world) startFar() vpc.Node {
	w.AddInterfaces(emulated.Interface{ID: "eni-250", Subnet: "subnet-far", Instance: instance(250), Addresses: addrs("10.1.0.5")})
	return vpc.Node{Name: "far", ProviderID: "aws:///eu-central-1b/" + instance(250), Addresses: addrs("10.1.0.5")}
}

// route is the one of machine i in the near table.
func route(i int) vpc.Route {
	return vpc.Route{Table: theTable, Destination: podCIDR(i), NextHop: hop(i)}
}

func create(i int) vpc.Change { return vpc.Change{Op: vpc.Create, Route: route(i)} }

// apply makes changes that must all succeed.
func apply(t *testing.T, table vpc.RouteTable, changes ...vpc.Change) {
	t.Helper()
	for i, err := range table.Apply(t.Context(), changes) {
		if err != nil {
			t.Fatalf("change %d (%s %s): %v", i, changes[i].Op, changes[i].Route.Destination, err)
		}
	}
}

// listed finds a listed route of the near table by its destination.
func listed(t *testing.T, table vpc.RouteTable, d netip.Prefix) vpc.Route {
	t.Helper()
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(routes, func(r vpc.Route) bool { return r.Destination == d && r.Table == theTable })
	if i < 0 {
		t.Fatalf("%s is not listed in %v", d, routes)
	}
	return routes[i]
}

// resync is one pass of a controller: list, next hops, plan, ledger, apply.
func (w *world) resync(ctx context.Context, table vpc.RouteTable, nodes map[netip.Prefix]vpc.Node) (vpc.Diff, error) {
	limits, err := table.Limits(ctx)
	if err != nil {
		return vpc.Diff{}, err
	}
	actual, err := table.List(ctx)
	if err != nil {
		return vpc.Diff{}, err
	}
	var desired []vpc.Route
	for d, n := range nodes {
		hop, err := table.NextHop(ctx, n, vpc.FamilyOf(d))
		if err != nil && vpc.ClassOf(err) != vpc.NotFound {
			return vpc.Diff{}, err
		}
		desired = append(desired, vpc.Route{Destination: d, NextHop: hop, Node: n.Name})
	}
	rules := vpc.Rules{Owner: theCluster, Ranges: w.config.ClusterCIDRs, Ledger: w.ledger, MaxDeletes: -1, Room: map[string]int{}}
	for _, l := range limits.Tables {
		rules.Tables = append(rules.Tables, l.Table)
		rules.Room[l.Table] = l.Max - l.Used
	}
	diff := vpc.Plan(desired, actual, rules)
	for _, c := range diff.Changes {
		if c.Op != vpc.Delete {
			w.ledger = append(w.ledger, c.Route)
		}
	}
	for i, e := range table.Apply(ctx, diff.Changes) {
		if e != nil && err == nil {
			err = fmt.Errorf("%s: %w", diff.Changes[i].Reason, e)
		}
	}
	return diff, err
}
