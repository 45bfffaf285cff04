package gcp_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

const (
	theProject = "shop-prod-1"
	theNetwork = "prod"
	theZone    = "europe-west1-b"
	theCluster = "prod"
	thePath    = "projects/" + theProject + "/global/networks/" + theNetwork
)

var (
	clusterCIDR  = netip.MustParsePrefix("10.244.0.0/16")
	clusterCIDR6 = netip.MustParsePrefix("fd00:10:244::/48")
	subnetRange  = netip.MustParsePrefix("10.0.0.0/16")
)

func addrs(texts ...string) (addresses []netip.Addr) {
	for _, s := range texts {
		addresses = append(addresses, netip.MustParseAddr(s))
	}
	return addresses
}

// A world is an emulated project with one network.
type world struct {
	*emulated.Emulator
	config gcp.Config
}

const directURL = "http://gcp.test"

// keyFile is a service account's key for the emulator behind a URL.
func keyFile(t testing.TB, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, emulated.Key(url), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newWorld(t testing.TB, options ...func(*emulated.Options)) *world {
	o := emulated.Defaults()
	for _, f := range options {
		f(&o)
	}
	e := emulated.New(o)
	e.AddNetwork(theProject, theNetwork, subnetRange)
	return &world{Emulator: e, config: gcp.Config{
		Project: theProject, Network: theNetwork, Owner: theCluster, ClusterCIDRs: []netip.Prefix{clusterCIDR, clusterCIDR6},
		CredentialsFile: keyFile(t, directURL),
		Endpoint:        gcp.Endpoint{URL: directURL, Transport: cloud.Direct(e)},
		Version:         "0.0.0-test",
		// Tests that do not look at the pace need not wait for it.
		WritesPerSecond: 1e6,
	}}
}

// listen puts the emulator behind a socket.
func (w *world) listen(t *testing.T) {
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.config.Endpoint = gcp.Endpoint{URL: server.URL}
	w.config.CredentialsFile = keyFile(t, server.URL)
}

// table opens the table and forgets the calls that took.
func (w *world) table(t testing.TB) vpc.RouteTable {
	t.Helper()
	table, err := gcp.New(context.Background(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.Forget()
	return table
}

// routes lists the network's static routes.
func (w *world) routes() []string { return w.Routes(theProject, theNetwork) }

// podCIDR, address and machine are those of machine i: 10.244.i.0/24 and
// 10.0.0.(i+10), for i below 256, and from there on in the next /16.
func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(244 + i/256), byte(i % 256), 0}), 24)
}

func podCIDR6(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%x::/64", i))
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte((i + 10) / 256), byte((i + 10) % 256)})
}

func address6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd20::%x", i+10)) }

func machine(i int) emulated.Machine {
	return emulated.Machine{
		Project: theProject, Zone: theZone, Name: fmt.Sprintf("node-%d", i), Network: thePath,
		Addresses: []netip.Addr{address(i), address6(i)}, CanIPForward: true,
	}
}

func (w *world) startMachines(numbers ...int) {
	for _, i := range numbers {
		w.AddMachines(machine(i))
	}
}

func numbers(from, to int) (n []int) {
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

func node(i int) vpc.Node {
	return vpc.Node{
		Name: fmt.Sprintf("node-%d.internal", i), ProviderID: fmt.Sprintf("gce://%s/%s/node-%d", theProject, theZone, i),
		Addresses: []netip.Addr{address(i), address6(i)},
	}
}

func hop(i int) vpc.NextHop { return vpc.NextHop(machine(i).Path()) }

// route is the one of machine i.
func route(i int) vpc.Route {
	return vpc.Route{Table: theNetwork, Destination: podCIDR(i), NextHop: hop(i), Owner: theCluster}
}

func create(i int) vpc.Change { return vpc.Change{Op: vpc.Create, Route: route(i)} }

// line is how the emulator shows a route.
func line(destination, machine int) string {
	return fmt.Sprintf("%s %s", podCIDR(destination), hop(machine))
}

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

// replacement is the change that leads range i to another machine.
func replacement(t *testing.T, table vpc.RouteTable, i, to int) vpc.Change {
	t.Helper()
	old := listed(t, table, podCIDR(i))
	c := vpc.Change{Op: vpc.Replace, Route: old, Old: old}
	c.Route.ID, c.Route.NextHop = "", hop(to)
	return c
}

// resync is one pass of a controller: next hops, list, plan, apply.
func resync(ctx context.Context, table vpc.RouteTable, owner string, nodes map[netip.Prefix]vpc.Node) (vpc.Diff, error) {
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
	rules := vpc.Rules{Owner: owner, Ranges: []netip.Prefix{clusterCIDR, clusterCIDR6}, MaxDeletes: -1, Room: map[string]int{}}
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

// watchRange tells every state that packets see of a range: the machines that
// routes lead to, the winning one first.
func (w *world) watchRange(d netip.Prefix) (seen func() [][]netip.Addr) {
	var mu sync.Mutex
	var states [][]netip.Addr
	w.Program = func(routes []cloud.Route) {
		mu.Lock()
		defer mu.Unlock()
		var vias []netip.Addr
		for _, r := range routes {
			if r.Destination == d {
				vias = append(vias, r.Via)
			}
		}
		if len(states) == 0 || !slices.Equal(states[len(states)-1], vias) {
			states = append(states, vias)
		}
	}
	return func() [][]netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(states)
	}
}
