package tencent_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

// vpcVariants are the behaviours on which the sources disagree.
func vpcVariants() map[string]func(*emulated.Options) {
	return map[string]func(*emulated.Options){
		"whole batches":           func(*emulated.Options) {},
		"partial batches":         func(o *emulated.Options) { o.PartialBatches = true },
		"ECMP accepted":           func(o *emulated.Options) { o.ECMP = true },
		"named by RouteId":        func(o *emulated.Options) { o.Key = emulated.NumberKey },
		"named by RouteItemId":    func(o *emulated.Options) { o.Key = emulated.ItemKey },
		"smaller batches allowed": func(o *emulated.Options) { o.Batch = 7 },
	}
}

func numbers(from, to int) (all []int) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

func TestRouteTableLifeCycle(t *testing.T) {
	for name, option := range vpcVariants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tencent.VPC, option)
			w.startMachines(numbers(1, 24)...)
			table := w.table(t)
			var creates []vpc.Change
			var want []string
			for i := 1; i <= 20; i++ {
				creates = append(creates, w.create(i))
				want = append(want, podCIDR(i).String()+" "+address(i).String())
			}
			slices.Sort(want)
			apply(t, table, creates...)
			if d := cmp.Diff(want, w.routes()); d != "" {
				t.Fatalf("after creation (-want +got):\n%s", d)
			}
			apply(t, table, creates...) // exactly these are there: read back, success
			if d := cmp.Diff(want, w.routes()); d != "" {
				t.Fatalf("after the same again (-want +got):\n%s", d)
			}
			old := listed(t, table, podCIDR(3))
			if old.Owner != theCluster || old.ID == "" {
				t.Fatalf("listed as %+v", old)
			}
			moved := w.route(3)
			moved.NextHop = hop(23)
			w.Forget()
			apply(t, table, vpc.Change{Op: vpc.Replace, Route: moved, Old: old})
			if got := listed(t, table, podCIDR(3)); got.NextHop != hop(23) || got.ID != old.ID || got.Owner != theCluster {
				t.Errorf("replaced %+v by %+v: want the same entry with its mark", old, got)
			}
			if n := len(w.Calls("DeleteRoutes")); n != 0 {
				t.Errorf("a replace deleted %d times: it must be done in place", n)
			}
			var deletes []vpc.Change
			for i := 1; i <= 20; i++ {
				deletes = append(deletes, vpc.Change{Op: vpc.Delete, Route: listed(t, table, podCIDR(i))})
			}
			w.Remove(podCIDR(5)) // somebody was faster
			apply(t, table, deletes...)
			apply(t, table, deletes...)
			if got := w.routes(); len(got) != 0 {
				t.Errorf("left after deletion: %v", got)
			}
		})
	}
}

// One bad entry in a batch: it alone fails, with its own reason.
func TestBadEntryInBatch(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(w *world)
		bad   func(w *world) vpc.Route
		class vpc.Class
		text  string
	}{
		{"the range leads elsewhere", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.30.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.39"})
		}, func(w *world) vpc.Route { return w.route(30) }, vpc.Exists, "10.244.30.0/24 by [10.0.0.39]"},
		{"no such machine", func(*world) {}, func(w *world) vpc.Route { return w.route(31) }, vpc.NotFound, "no CVM"},
		{"inside the VPC", func(*world) {}, func(w *world) vpc.Route {
			r := w.route(29)
			r.Destination = netip.MustParsePrefix("10.1.7.0/24")
			return r
		}, vpc.Invalid, "VpcCidrConflict"},
		{"in a cluster table's range", func(w *world) {
			w.AddClusterTable("cls-9", theVPC, netip.MustParsePrefix("10.244.28.0/24"))
		}, func(w *world) vpc.Route { return w.route(28) }, vpc.Invalid, "mode global-route"},
		{"IPv6", func(*world) {}, func(w *world) vpc.Route {
			r := w.route(1)
			r.Destination = netip.MustParsePrefix("fd00::/64")
			return r
		}, vpc.Invalid, "not an IPv4 range"},
	}
	for name, option := range vpcVariants() {
		for _, tt := range tests {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				w := newWorld(tencent.VPC, option)
				w.startMachines(numbers(1, 30)...)
				tt.setUp(w)
				table := w.table(t)
				changes := []vpc.Change{}
				for i := 1; i <= 20; i++ {
					changes = append(changes, w.create(i))
				}
				changes = slices.Insert(changes, 13, vpc.Change{Op: vpc.Create, Route: tt.bad(w)})
				for i, err := range table.Apply(t.Context(), changes) {
					if i != 13 && err != nil {
						t.Errorf("good change %d: %v", i, err)
					}
					if i == 13 && (err == nil || vpc.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.text)) {
						t.Errorf("bad change: %v (%v), want %v: %q", err, vpc.ClassOf(err), tt.class, tt.text)
					}
				}
				if n := w.Writes(); n > 24 {
					t.Errorf("%d writes to find one bad entry of 21", n)
				}
			})
		}
	}
}

// A fault of every entry is not searched for one by one.
func TestWhollyBadBatchEndsSoon(t *testing.T) {
	w := newWorld(tencent.VPC)
	w.AddClusterTable("cls-9", theVPC, clusterCIDR)
	w.startMachines(numbers(1, 100)...)
	table := w.table(t)
	var changes []vpc.Change
	for i := 1; i <= 100; i++ {
		changes = append(changes, w.create(i))
	}
	invalid := 0
	for i, err := range table.Apply(t.Context(), changes) {
		switch {
		case err == nil:
			t.Errorf("change %d passes", i)
		case vpc.ClassOf(err) == vpc.Invalid:
			invalid++
		case vpc.ClassOf(err) != vpc.Transient:
			t.Errorf("change %d: %v", i, err)
		}
	}
	if invalid == 0 {
		t.Error("no change was found to be at fault")
	}
	if n := w.Writes(); n > 120 {
		t.Errorf("%d writes", n)
	}
}

// R070: a full table takes what fits; the rest is told so, without a flood, and
// goes on when the quota was raised.
func TestFullRouteTable(t *testing.T) {
	for name, option := range vpcVariants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tencent.VPC, option)
			w.startMachines(numbers(1, 60)...)
			table := w.table(t)
			var changes []vpc.Change
			for i := 1; i <= 60; i++ {
				changes = append(changes, w.create(i))
			}
			full := 0
			for i, err := range table.Apply(t.Context(), changes) {
				if vpc.ClassOf(err) == vpc.Quota {
					full++
				} else if err != nil {
					t.Errorf("change %d: %v", i, err)
				}
			}
			if n := len(w.routes()); n != 50 || full != 10 {
				t.Errorf("%d routes are there and %d were refused, want 50 and 10", n, full)
			}
			limits, err := table.Limits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]vpc.TableLimits{{Table: theTable, Used: limits.Tables[0].Used, Max: 50}}, limits.Tables); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
			w.Forget()
			for _, err := range table.Apply(t.Context(), changes[50:]) {
				if vpc.ClassOf(err) != vpc.Quota {
					t.Errorf("into the full table: %v", err)
				}
			}
			if n := w.Writes(); name != "smaller batches allowed" && n > 2 {
				t.Errorf("%d writes into a full table", n)
			}
		})
	}
}

// A disabled route does not route: it is listed as wrong and switched on.
func TestDisabledRoute(t *testing.T) {
	off := false
	for name, option := range vpcVariants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tencent.VPC, option)
			w.startMachines(1, 2, 3)
			for i := 1; i <= 2; i++ {
				w.AddRoute(theTable, emulated.Route{
					DestinationCidrBlock: podCIDR(i).String(), GatewayType: "NORMAL_CVM", GatewayId: address(i).String(),
					RouteDescription: "vpcroute/" + theCluster, Enabled: &off,
				})
			}
			table := w.table(t)
			nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1), podCIDR(2): node(3)} // the second one moved
			if _, err := resync(t.Context(), table, nodes); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]string{"10.244.1.0/24 10.0.0.11", "10.244.2.0/24 10.0.0.13"}, w.routes()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if n := len(w.Calls("DeleteRoutes", "CreateRoutes")); n != 0 {
				t.Errorf("%d creates and deletes: a disabled route is switched on in place", n)
			}
			diff, err := resync(t.Context(), table, nodes)
			if err != nil || len(diff.Changes) != 0 {
				t.Errorf("second pass: %v, %v", diff.Changes, err)
			}
		})
	}
}

// Strangers and odd entries are listed and cannot be changed by their listing.
func TestStrangersAreListedAndSafe(t *testing.T) {
	w := newWorld(tencent.VPC)
	w.startMachines(1)
	for _, r := range []emulated.Route{
		{DestinationCidrBlock: "0.0.0.0/0", GatewayType: "NAT", GatewayId: "nat-1"},
		{DestinationCidrBlock: "10.244.40.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.50", RouteType: "NETD"},
		{DestinationCidrBlock: "10.244.41.0/24", GatewayType: "CCN", GatewayId: "ccn-1", RouteType: "CCN"},
		{DestinationCidrBlock: "10.244.42.7/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.50", RouteDescription: "by hand"},
		{DestinationCidrBlock: "10.244.43.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.50", RouteDescription: "vpcroute/cls-10"},
		{DestinationCidrBlock: "10.244.44.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.50", RouteDescription: " vpcroute/cls-1"},
		{DestinationCidrBlock: "", GatewayType: "NORMAL_CVM", GatewayId: ""},
	} {
		w.AddRoute(theTable, r)
	}
	table := w.table(t)
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range routes {
		got = append(got, fmt.Sprintf("%v|%s|%s|%s|%v", r.Destination, r.Text, r.NextHop, r.Owner, r.ID != ""))
	}
	want := []string{
		"0.0.0.0/0||||true",
		"10.244.40.0/24||10.0.0.50||false",
		"10.244.41.0/24||||false",
		"invalid Prefix|10.244.42.7/24|10.0.0.50||true",
		"10.244.43.0/24||10.0.0.50|cls-10|true",
		"10.244.44.0/24||10.0.0.50||true", // a mark is the whole description
		"invalid Prefix|(no destination)|||true",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	before := w.routes()
	var errs []error
	for _, i := range []int{1, 2} { // system routes
		errs = append(errs, table.Apply(t.Context(), []vpc.Change{{Op: vpc.Delete, Route: routes[i]}})...)
	}
	for _, err := range errs {
		if vpc.ClassOf(err) != vpc.Invalid || err == nil {
			t.Errorf("delete of a system route: %v", err)
		}
	}
	if n := w.Writes(); n != 0 {
		t.Errorf("%d writes for system routes", n)
	}
	if _, err := resync(t.Context(), table, map[netip.Prefix]vpc.Node{podCIDR(1): node(1)}); err != nil {
		t.Error(err)
	}
	after := slices.DeleteFunc(w.routes(), func(s string) bool { return s == "10.244.1.0/24 10.0.0.11" })
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("a resync changed strangers (-before +after):\n%s", d)
	}
}

func TestTablesBySelection(t *testing.T) {
	far := vpc.Node{Name: "far", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.5")}}
	tests := []struct {
		name    string
		config  func(c *tencent.Config)
		nodes   []vpc.Node
		want    []string
		wantErr string // of NextHop for the far node, when it is among the nodes
	}{
		{"by id", func(*tencent.Config) {}, []vpc.Node{node(1)}, []string{theTable}, ""},
		{"by two ids", func(c *tencent.Config) { c.Tables = []string{farTable, theTable} }, []vpc.Node{node(1), far}, []string{farTable, theTable}, ""},
		{"by id without a VPC id", func(c *tencent.Config) { c.VpcID = "" }, []vpc.Node{node(1)}, []string{theTable}, ""},
		{"by tag", func(c *tencent.Config) { c.Tables, c.TableTag = nil, "vpcroute=yes" }, []vpc.Node{node(1)}, []string{theTable}, ""},
		{"those that subnets use", func(c *tencent.Config) { c.Tables = nil }, []vpc.Node{node(1), far}, []string{farTable, theTable}, ""},
		{"those that subnets use, before any node was seen", func(c *tencent.Config) { c.Tables = nil }, nil, []string{farTable, theTable}, ""},
		// R068: subnet and table are named, no silent success.
		{"a node in a subnet of another table", func(*tencent.Config) {}, []vpc.Node{node(1), far}, []string{theTable}, "subnet subnet-far, which uses route table rtb-far"},
		{"the same, by tag", func(c *tencent.Config) { c.Tables, c.TableTag = nil, "vpcroute=yes" }, []vpc.Node{far}, []string{theTable}, "subnet subnet-far, which uses route table rtb-far"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.VPC)
			tt.config(&w.config)
			table := w.table(t)
			for _, n := range tt.nodes {
				_, err := table.NextHop(t.Context(), n, vpc.IPv4)
				switch {
				case err == nil && (n.Name != "far" || tt.wantErr == ""):
				case err != nil && n.Name == "far" && tt.wantErr != "" && strings.Contains(err.Error(), tt.wantErr) && vpc.ClassOf(err) == vpc.Invalid:
				default:
					t.Errorf("NextHop of %s: %v, want %q", n.Name, err, tt.wantErr)
				}
			}
			limits, err := table.Limits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range limits.Tables {
				got = append(got, l.Table)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("managed tables (-want +got):\n%s", d)
			}
		})
	}
}

// A table that subnets no longer use stays managed as long as it holds routes of
// ours, so that nothing is left behind in it.
func TestFoundTablesAreCleanedAfterTheirLastSubnet(t *testing.T) {
	w := newWorld(tencent.VPC)
	w.config.Tables = nil
	w.startMachines(1, 2)
	w.AddTable(theVPC, "rtb-idle", nil)
	w.AddRoute(farTable, emulated.Route{DestinationCidrBlock: podCIDR(2).String(), GatewayType: "NORMAL_CVM", GatewayId: address(2).String(), RouteDescription: "vpcroute/" + theCluster})
	w.AddSubnet(theVPC, "subnet-far", netip.MustParsePrefix("10.1.0.0/18"), theTable)
	table := w.table(t)
	if _, err := resync(t.Context(), table, map[netip.Prefix]vpc.Node{podCIDR(1): node(1)}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"10.244.1.0/24 10.0.0.11"}, w.vpcRoutes(farTable)); d != "" {
		t.Errorf("the far table (-want +got):\n%s", d)
	}
	if got := w.vpcRoutes("rtb-idle"); len(got) != 0 {
		t.Errorf("a table that no subnet uses got %v", got)
	}
}

// R070: wanted in several tables, each has them all.
func TestRoutesInSeveralTables(t *testing.T) {
	w := newWorld(tencent.VPC)
	w.config.Tables = []string{theTable, farTable}
	w.startMachines(numbers(1, 40)...)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{}
	for i := 1; i <= 40; i++ {
		nodes[podCIDR(i)] = node(i)
	}
	if _, err := resync(t.Context(), table, nodes); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w.vpcRoutes(theTable), w.vpcRoutes(farTable)); d != "" || len(w.routes()) != 40 {
		t.Errorf("%d routes, tables differ (-near +far):\n%s", len(w.routes()), d)
	}
	if n := w.Writes(); n != 2 {
		t.Errorf("%d writes for 40 routes in two tables, want 2", n)
	}
}

func TestSelectionsThatFitNothing(t *testing.T) {
	tests := []struct {
		name   string
		config func(c *tencent.Config)
		want   string
	}{
		{"no such table", func(c *tencent.Config) { c.Tables = []string{"rtb-none"} }, "route table rtb-none: not in VPC vpc-1"},
		{"no such table, no VPC id", func(c *tencent.Config) { c.Tables, c.VpcID = []string{"rtb-none"}, "" }, "rtb-none"},
		{"no table with the tag", func(c *tencent.Config) { c.Tables, c.TableTag = nil, "vpcroute=no" }, `table tag "vpcroute=no"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.VPC)
			tt.config(&w.config)
			if _, err := tencent.New(t.Context(), w.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want %q", err, tt.want)
			}
		})
	}
}

// 130 tables: more than one page, and a page that goes missing is an error.
func TestPaging(t *testing.T) {
	w := newWorld(tencent.VPC)
	w.startMachines(1)
	for i := range 130 {
		w.AddTable(theVPC, fmt.Sprintf("rtb-x%03d", i), map[string]string{"many": "yes"})
	}
	w.config.Tables, w.config.TableTag = nil, "many=yes"
	table := w.table(t)
	limits, err := table.Limits(t.Context())
	if err != nil || len(limits.Tables) != 130 {
		t.Fatalf("%d tables, %v", len(limits.Tables), err)
	}
	w.Inject(cloud.Fault{Operation: "DescribeRouteTables", After: 1, Answer: &cloud.Answer{Body: map[string]any{"TotalCount": 132, "RouteTableSet": []any{}}}})
	_, _ = table.List(t.Context()) // may use what Limits read
	if _, err := table.List(t.Context()); err == nil {
		t.Error("List passes over a missing page")
	}
}

// With ECMP a second entry for a range is accepted, so nothing is created beside
// a foreign one; and of two entries of ours the wrong one goes.
func TestTwoEntriesForOneRange(t *testing.T) {
	w := newWorld(tencent.VPC, func(o *emulated.Options) { o.ECMP = true })
	w.startMachines(1, 2)
	for i := 1; i <= 2; i++ {
		w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: podCIDR(1).String(), GatewayType: "NORMAL_CVM", GatewayId: address(i).String(), RouteDescription: "vpcroute/" + theCluster})
	}
	table := w.table(t)
	if _, err := resync(t.Context(), table, map[netip.Prefix]vpc.Node{podCIDR(1): node(2)}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"10.244.1.0/24 10.0.0.12"}, w.routes()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
