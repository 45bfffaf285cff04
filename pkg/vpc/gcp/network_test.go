package gcp_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

// R083: every provider ID that is known, and both ways to name a machine.
func TestNextHop(t *testing.T) {
	shared := vpc.Node{Name: "a", ProviderID: "gce://team-1/europe-west1-b/node-1", Addresses: addrs("10.0.0.11", "fd20::b")}
	bare := vpc.Node{Name: "a", Addresses: addrs("fd20::b", "10.0.0.11")}
	tests := []struct {
		name   string
		kind   gcp.NextHopKind
		node   vpc.Node
		family vpc.Family
		want   vpc.NextHop
		text   string // in the error
	}{
		{"instance", gcp.Auto, node(1), vpc.IPv4, hop(1), ""},
		{"instance, IPv6", gcp.Auto, node(1), vpc.IPv6, hop(1), ""},
		{"instance without addresses", gcp.Auto, vpc.Node{ProviderID: node(1).ProviderID}, vpc.IPv4, hop(1), ""},
		{"service project", gcp.Auto, shared, vpc.IPv4, "10.0.0.11", ""},
		{"service project, IPv6", gcp.Auto, shared, vpc.IPv6, "fd20::b", ""},
		{"no provider ID", gcp.Auto, bare, vpc.IPv4, "10.0.0.11", ""},
		{"by address", gcp.Address, node(1), vpc.IPv4, "10.0.0.11", ""},
		{"IPv4 dressed as IPv6", gcp.Address, vpc.Node{Addresses: addrs("::ffff:10.0.0.11")}, vpc.IPv4, "10.0.0.11", ""},
		{"instance wanted, service project", gcp.Instance, shared, vpc.IPv4, "", "its project team-1 is not the network's"},
		{"instance wanted, no provider ID", gcp.Instance, bare, vpc.IPv4, "", "has no provider ID"},
		{"no address", gcp.Auto, vpc.Node{Name: "a"}, vpc.IPv4, "", "neither a provider ID"},
		{"no IPv6 address", gcp.Address, vpc.Node{Name: "a", Addresses: addrs("10.0.0.11")}, vpc.IPv6, "", "internal IPv6 address"},
		{"another cloud's", gcp.Auto, vpc.Node{Name: "a", ProviderID: "aws:///eu-west-1a/i-0a1b2c3d", Addresses: addrs("10.0.0.11")}, vpc.IPv4, "", `"aws:///eu-west-1a/i-0a1b2c3d" is not a machine of Google Cloud`},
		{"a part is missing", gcp.Auto, vpc.Node{Name: "a", ProviderID: "gce://shop-prod-1/node-1", Addresses: addrs("10.0.0.11")}, vpc.IPv4, "", "is not a machine of Google Cloud"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.config.NextHops = tt.kind
			table := w.table(t)
			got, err := table.NextHop(t.Context(), tt.node, tt.family)
			switch {
			case tt.text == "" && (err != nil || got != tt.want):
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			case tt.text != "" && (err == nil || vpc.ClassOf(err) != vpc.Invalid || !strings.Contains(err.Error(), tt.text)):
				t.Errorf("%v (%v), want Invalid: %q", err, vpc.ClassOf(err), tt.text)
			}
			if n := len(w.Calls()); n != 0 {
				t.Errorf("%d calls", n)
			}
		})
	}
	t.Run("domain-scoped project", func(t *testing.T) {
		w := newWorld(t)
		w.AddNetwork("example.com:shop", theNetwork)
		w.config.Project = "example.com:shop"
		table := w.table(t)
		n := vpc.Node{ProviderID: "gce://example.com:shop/europe-west1-b/node-1"}
		if got, err := table.NextHop(t.Context(), n, vpc.IPv4); err != nil || got != "projects/example.com:shop/zones/europe-west1-b/instances/node-1" {
			t.Errorf("%q, %v", got, err)
		}
		if routes, err := table.List(t.Context()); err != nil || len(routes) != 0 {
			t.Errorf("another project's routes: %v, %v", routes, err)
		}
	})
}

// The owner is compared whole: neither a longer id with the same beginning, nor a
// copied description or name, makes a route ours.
func TestOwnershipIsAnExactKey(t *testing.T) {
	w := newWorld(t)
	w.startMachines(1, 2, 3)
	other := w.config
	other.Owner = "prod-eu"
	theirs, err := gcp.New(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	ours := w.table(t)
	apply(t, theirs, create(1))
	apply(t, ours, create(2))
	name := listed(t, ours, podCIDR(2)).ID
	made := foreign(route(3))
	for range 2 {
		made.Description = "vpcroute/prod"
		w.AddRoute(theProject, made)
	}
	for _, tt := range []struct {
		table vpc.RouteTable
		owner string
	}{{ours, "prod"}, {theirs, "prod-eu"}} {
		routes, err := tt.table.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		owners := map[netip.Prefix]string{}
		for _, r := range routes {
			owners[r.Destination] = r.Owner
		}
		want := map[netip.Prefix]string{podCIDR(1): "prod-eu", podCIDR(2): "prod", podCIDR(3): "", subnetRange: ""}
		if d := cmp.Diff(want, owners, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("owners as %s sees them (-want +got):\n%s", tt.owner, d)
		}
	}
	// Each cluster empties its own and nothing else.
	if _, err := resync(t.Context(), ours, "prod", nil); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{line(1, 1), line(3, 3)}, w.routes()); d != "" {
		t.Errorf("after prod was emptied (-want +got):\n%s", d)
	}
	if slices.Contains(w.Names(theProject), name) {
		t.Errorf("%s is still there", name)
	}
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	w.startMachines(1, 2)
	w.AddNetwork(theProject, "prod-2", netip.MustParsePrefix("10.1.0.0/16"))
	table := w.table(t)
	long := vpc.Route{Table: theNetwork, Destination: netip.MustParsePrefix("fd00:1234:5678:9abc:def0:1234:5678:9abc/128"), NextHop: hop(1)}
	apply(t, table, create(1), vpc.Change{Op: vpc.Create, Route: long})
	shape := regexp.MustCompile(`^r-[0-9a-f]{12}-[0-9a-f-]+-[0-9]+-[0-9a-f]{8}$`)
	for _, name := range w.Names(theProject) {
		if strings.HasPrefix(name, "r-") && (!shape.MatchString(name) || len(name) > 63) {
			t.Errorf("name %q of %d characters", name, len(name))
		}
	}
	// The same range by the same machine in another network has another name.
	w.config.Network = "prod-2"
	second := w.table(t)
	for i := 1; i <= 2; i++ {
		m := machine(i)
		m.Network = "projects/" + theProject + "/global/networks/prod-2"
		w.AddMachines(m)
	}
	c := create(1)
	c.Route.Table = "prod-2"
	apply(t, second, c)
	if n := len(w.routes()); n != 2 {
		t.Errorf("%d routes in the first network", n)
	}
}

// The name is taken: by the wanted route, by one that leads elsewhere, by one
// that is not ours, by an operation. Only the first is success.
func TestTakenName(t *testing.T) {
	tests := map[string]struct {
		alter func(r *emulated.Route)
		class vpc.Class
	}{
		"by the wanted route":       {func(*emulated.Route) {}, 0},
		"by one to another machine": {func(r *emulated.Route) { r.NextHopInstance = machine(2).Path() }, vpc.Exists},
		"by one for another range":  {func(r *emulated.Route) { r.DestRange = podCIDR(2).String() }, vpc.Exists},
		"by a stranger's":           {func(r *emulated.Route) { r.Description = "mine" }, vpc.Exists},
		"by one for tagged machines": {func(r *emulated.Route) {
			r.Tags = []string{"batch"}
		}, vpc.Exists},
		"in another network": {func(r *emulated.Route) { r.Network = "projects/" + theProject + "/global/networks/prod-2" }, vpc.Exists},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.startMachines(1, 2)
			table := w.table(t)
			apply(t, table, create(1))
			taken := foreign(route(1))
			taken.Name, taken.Description = listed(t, table, podCIDR(1)).ID, "vpcroute/"+theCluster
			tt.alter(&taken)
			w.AddRoute(theProject, taken)
			// The list does not show it yet, so the name is met with the insert.
			w.Inject(cloud.Fault{Operation: "routes.list", Answer: &cloud.Answer{Body: map[string]any{}}})
			err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
			if tt.class == 0 && err != nil || tt.class != 0 && (err == nil || vpc.ClassOf(err) != tt.class) {
				t.Errorf("%v (%v), want %v", err, vpc.ClassOf(err), tt.class)
			}
		})
	}
}

// While a range changes its machine, packets always have a route, and the new
// one counts as soon as it is there.
func TestReplaceLeavesNoGap(t *testing.T) {
	w := newWorld(t, func(o *emulated.Options) { o.OperationTime = time.Millisecond })
	w.startMachines(numbers(1, 9)...)
	seen := w.watchRange(podCIDR(1))
	table := w.table(t)
	apply(t, table, create(1))
	for to := 2; to <= 9; to++ {
		apply(t, table, replacement(t, table, 1, to))
	}
	states := seen()
	for len(states) > 0 && len(states[0]) == 0 {
		states = states[1:] // before the first
	}
	var want [][]netip.Addr
	for i := 1; i <= 9; i++ {
		if i > 1 {
			want = append(want, []netip.Addr{address(i), address(i - 1)})
		}
		want = append(want, []netip.Addr{address(i)})
	}
	if d := cmp.Diff(want, states, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("what packets saw (-want +got):\n%s", d)
	}
}

// R070: a replace in a project without room still comes about.
func TestReplaceInFullProject(t *testing.T) {
	for name, option := range variants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, option, func(o *emulated.Options) { o.Routes = 2 })
			w.startMachines(1, 2, 3)
			table := w.table(t)
			apply(t, table, create(1), create(2))
			apply(t, table, replacement(t, table, 1, 3))
			if d := cmp.Diff([]string{line(1, 3), line(2, 2)}, w.routes()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// R070: 60 nodes where 50 fit, and no flood of calls for the others; room that
// deletes make is used in the same pass.
func TestFullProject(t *testing.T) {
	w := newWorld(t, func(o *emulated.Options) { o.Routes = 50 })
	w.startMachines(numbers(1, 60)...)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{}
	for i := 1; i <= 60; i++ {
		nodes[podCIDR(i)] = node(i)
	}
	if _, err := resync(t.Context(), table, theCluster, nodes); vpc.ClassOf(err) != vpc.Quota || !strings.Contains(err.Error(), "Quota 'ROUTES' exceeded") {
		t.Errorf("%v (%v), want Quota", err, vpc.ClassOf(err))
	}
	if n := len(w.routes()); n != 50 {
		t.Errorf("%d routes", n)
	}
	if n := w.Writes(); n > 60 {
		t.Errorf("%d writes for 60 nodes", n)
	}
	made := 0
	for i := 1; i <= 60 && made < 10; i++ {
		if slices.Contains(w.routes(), line(i, i)) {
			delete(nodes, podCIDR(i))
			made++
		}
	}
	if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
		t.Errorf("with room for all: %v", err)
	}
	if n := len(w.routes()); n != 50 {
		t.Errorf("%d routes for 50 nodes", n)
	}
}

// R083: a machine that may not forward. Its route exists, and the answer, the
// node and the check say why packets do not pass; once it may, all is well.
func TestMachineThatMayNotForward(t *testing.T) {
	w := newWorld(t)
	stuck := machine(1)
	stuck.CanIPForward = false
	w.AddMachines(stuck)
	table := w.table(t)
	for range 2 { // made, and found made
		err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
		if err == nil || vpc.ClassOf(err) != vpc.Invalid || !strings.Contains(err.Error(), "canIpForward is off") {
			t.Errorf("%v (%v), want the reason", err, vpc.ClassOf(err))
		}
		if d := cmp.Diff([]string{line(1, 1)}, w.routes()); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		if _, err := table.NextHop(t.Context(), node(1), vpc.IPv4); err == nil || !strings.Contains(err.Error(), "canIpForward is off") {
			t.Errorf("next hop: %v", err)
		}
	}
	if r := listed(t, table, podCIDR(1)); r.Blackhole || r.Owner != theCluster {
		t.Errorf("listed as %+v", r)
	}
	checkFindings(t, table.Preflight(t.Context()), []finding{{vpc.SeverityError, string(hop(1)), "canIpForward is off"}})
	w.startMachines(1)
	if _, err := table.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := table.NextHop(t.Context(), node(1), vpc.IPv4); err != nil || got != hop(1) {
		t.Errorf("next hop of the new machine: %q, %v", got, err)
	}
	apply(t, table, create(1))
}

// R083: IPv6 to a machine without IPv6.
func TestMachineWithoutIPv6(t *testing.T) {
	w := newWorld(t)
	m := machine(1)
	m.Addresses = m.Addresses[:1]
	w.AddMachines(m)
	table := w.table(t)
	c := create(1)
	c.Route.Destination = podCIDR6(1)
	err := table.Apply(t.Context(), []vpc.Change{c})[0]
	if err == nil || !strings.Contains(err.Error(), "has no IPv6") {
		t.Errorf("%v", err)
	}
}

// Shared VPC: routes in the host project lead to machines of others by address.
func TestSharedVPC(t *testing.T) {
	w := newWorld(t)
	m := machine(1)
	m.Project = "team-1"
	w.AddMachines(m)
	table := w.table(t)
	n := node(1)
	n.ProviderID = fmt.Sprintf("gce://team-1/%s/node-1", theZone)
	if _, err := resync(t.Context(), table, theCluster, map[netip.Prefix]vpc.Node{podCIDR(1): n, podCIDR6(1): n}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"10.244.1.0/24 10.0.0.11", "fd00:10:244:1::/64 fd20::b"}, w.routes()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	w.RemoveMachines(m.Path())
	if r := listed(t, table, podCIDR(1)); !r.Blackhole {
		t.Errorf("%+v is no blackhole", r)
	}
}

func TestConfigTellsAllThatIsWrong(t *testing.T) {
	c := gcp.Config{
		Project: "Shop", Network: "n_1", Owner: "a b", NextHops: "vm", WritesPerSecond: -1, CallTimeout: -1,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/16")}, Endpoint: gcp.Endpoint{URL: "compute"},
	}
	err := c.Validate()
	for _, part := range []string{`project "Shop"`, `network "n_1"`, `cluster id "a b"`, "10.244.0.1/16", `next hops "vm"`, "per second -1", "timeouts -1ns", `endpoint "compute"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
	w := newWorld(t)
	w.config.Network = "other"
	if _, err := gcp.New(t.Context(), w.config); vpc.ClassOf(err) != vpc.NotFound || !strings.Contains(err.Error(), "network other of project shop-prod-1") {
		t.Errorf("a network that is not there: %v", err)
	}
}
