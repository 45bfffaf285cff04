package tencent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

func TestClusterTableIsTheMark(t *testing.T) {
	tests := []struct {
		name   string
		setUp  func(w *world)
		create bool
		want   string // in the error; "" for success
	}{
		{"there", func(*world) {}, false, ""},
		{"there, and may be created", func(*world) {}, true, ""},
		{"not there", func(w *world) { w.config.Tables = []string{"cls-2"} }, false, "does not exist"},
		{"of another VPC", func(w *world) {
			w.AddVPC("vpc-2", netip.MustParsePrefix("10.9.0.0/16"))
			w.AddClusterTable(theCluster, "vpc-2", clusterCIDR)
		}, true, "belongs to VPC vpc-2, not to vpc-1"},
		{"of another range", func(w *world) {
			w.AddClusterTable(theCluster, theVPC, netip.MustParsePrefix("10.240.0.0/12"))
		}, true, "its range is 10.240.0.0/12, not the cluster CIDR 10.244.0.0/16"},
		{"created where another cluster has the range", func(w *world) {
			w.config.Tables = []string{"cls-2"}
			w.config.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.128.0/17")}
		}, true, "10.244.0.0/16 of cls-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			tt.setUp(w)
			w.config.CreateTable = tt.create
			_, err := tencent.New(t.Context(), w.config)
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestClusterTableIsCreatedWhenAllowed(t *testing.T) {
	w := newWorld(tencent.GlobalRoute)
	w.config.Tables, w.config.ClusterCIDRs = []string{"cls-2"}, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/14")}
	w.config.CreateTable = true
	table := w.table(t)
	limits, err := table.Limits(t.Context())
	if err != nil || limits.Tables[0].Table != "cls-2" {
		t.Fatalf("Limits: %v, %v", limits, err)
	}
	// Its answer got lost: the table is found when it is asked for again.
	w.config.Tables = []string{"cls-3"}
	w.config.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.100.0.0/14")}
	w.Inject(cloud.Fault{Operation: "CreateClusterRouteTable", Lost: true})
	if _, err := tencent.New(t.Context(), w.config); err == nil {
		t.Error("New passes a lost answer for success")
	}
	if _, err := tencent.New(t.Context(), w.config); err != nil {
		t.Errorf("New after a lost answer: %v", err)
	}
}

// Both families of each code, and both answers to a delete of what is missing.
func variants() map[string]func(*emulated.Options) {
	return map[string]func(*emulated.Options){
		"codes InternalError": func(*emulated.Options) {},
		"twin codes":          func(o *emulated.Options) { o.TwinCodes = true },
		"missing is an error": func(o *emulated.Options) { o.MissingRoute = emulated.MissingIsParam },
		"missing is an error, twin codes": func(o *emulated.Options) {
			o.MissingRoute, o.TwinCodes = emulated.MissingIsParam, true
		},
	}
}

func TestClusterRoutes(t *testing.T) {
	for name, option := range variants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute, option)
			w.startMachines(1, 2, 3)
			table := w.table(t)
			apply(t, table, w.create(1), w.create(2))
			want := []string{"10.244.1.0/24 10.0.0.11", "10.244.2.0/24 10.0.0.12"}
			if d := cmp.Diff(want, w.routes()); d != "" {
				t.Fatalf("after creation (-want +got):\n%s", d)
			}
			// The same again: "exists already" is success only since it was read.
			w.Forget()
			apply(t, table, w.create(1), w.create(2))
			if n := len(w.Calls("DescribeClusterRoutes")); n != 1 {
				t.Errorf("%d reads settled two creates of what is there, want 1", n)
			}
			apply(t, table, vpc.Change{Op: vpc.Replace, Route: vpc.Route{Table: theCluster, Destination: podCIDR(2), NextHop: hop(3)}, Old: w.route(2)})
			if d := cmp.Diff([]string{"10.244.1.0/24 10.0.0.11", "10.244.2.0/24 10.0.0.13"}, w.routes()); d != "" {
				t.Fatalf("after a replace (-want +got):\n%s", d)
			}
			gone := vpc.Change{Op: vpc.Delete, Route: w.route(1)}
			apply(t, table, gone)
			apply(t, table, gone)
			if d := cmp.Diff([]string{"10.244.2.0/24 10.0.0.13"}, w.routes()); d != "" {
				t.Fatalf("after a delete (-want +got):\n%s", d)
			}
		})
	}
}

func TestClusterRouteFailures(t *testing.T) {
	for name, option := range variants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute, option)
			w.startMachines(1, 2, 3)
			table := w.table(t)
			apply(t, table, w.create(1))
			to := func(d netip.Prefix, i int) vpc.Change {
				return vpc.Change{Op: vpc.Create, Route: vpc.Route{Table: theCluster, Destination: d, NextHop: hop(i)}}
			}
			tests := []struct {
				name   string
				change vpc.Change
				class  vpc.Class
				text   string
			}{
				{"the range leads to another node", to(podCIDR(1), 2), vpc.Exists, "10.244.1.0/24 leads to 10.0.0.11"},
				{"the node carries another range", to(podCIDR(7), 1), vpc.Exists, "10.0.0.11 carries 10.244.1.0/24"},
				{"no such machine", to(podCIDR(7), 7), vpc.NotFound, "CvmNotFound"},
				{"outside the table", to(netip.MustParsePrefix("10.99.0.0/24"), 3), vpc.Invalid, "CidrOutOfRouteTable"},
				{"IPv6", to(netip.MustParsePrefix("fd00::/64"), 3), vpc.Invalid, "not an IPv4 range"},
				{"host bits", to(netip.MustParsePrefix("10.244.9.1/24"), 3), vpc.Invalid, "not an IPv4 range"},
				{"another table", vpc.Change{Op: vpc.Create, Route: vpc.Route{Table: "cls-2", Destination: podCIDR(3), NextHop: hop(3)}}, vpc.Invalid, "not the managed table cls-1"},
			}
			var changes []vpc.Change
			for _, tt := range tests {
				changes = append(changes, tt.change)
			}
			errs := table.Apply(t.Context(), append(changes, to(podCIDR(3), 3)))
			for i, tt := range tests {
				if errs[i] == nil || vpc.ClassOf(errs[i]) != tt.class || !strings.Contains(errs[i].Error(), tt.text) {
					t.Errorf("%s: %v (%v), want %v: %q", tt.name, errs[i], vpc.ClassOf(errs[i]), tt.class, tt.text)
				}
			}
			if err := errs[len(tests)]; err != nil {
				t.Errorf("a good change beside bad ones: %v", err)
			}
		})
	}
}

// One node address carries one range, and ranges may not overlap: what is in the
// way goes first, whatever the order of the changes, and each range is without
// its route for no longer than it must be.
func TestChangesThatNeedEachOther(t *testing.T) {
	replace := func(w *world, d, from, to int) vpc.Change {
		return vpc.Change{
			Op: vpc.Replace, Old: vpc.Route{Table: theCluster, Destination: podCIDR(d), NextHop: hop(from)},
			Route: vpc.Route{Table: theCluster, Destination: podCIDR(d), NextHop: hop(to)},
		}
	}
	tests := []struct {
		name    string
		there   []int
		changes func(w *world) []vpc.Change
		want    []string
	}{
		{"a stale range on a recycled address", []int{1}, func(w *world) []vpc.Change {
			return []vpc.Change{
				{Op: vpc.Create, Route: vpc.Route{Table: theCluster, Destination: podCIDR(5), NextHop: hop(1)}},
				{Op: vpc.Delete, Route: w.route(1)},
			}
		}, []string{"10.244.5.0/24 10.0.0.11"}},
		{"two nodes swap ranges", []int{1, 2}, func(w *world) []vpc.Change {
			return []vpc.Change{replace(w, 1, 1, 2), replace(w, 2, 2, 1)}
		}, []string{"10.244.1.0/24 10.0.0.12", "10.244.2.0/24 10.0.0.11"}},
		{"a ring of three", []int{1, 2, 3}, func(w *world) []vpc.Change {
			return []vpc.Change{replace(w, 1, 1, 2), replace(w, 2, 2, 3), replace(w, 3, 3, 1)}
		}, []string{"10.244.1.0/24 10.0.0.12", "10.244.2.0/24 10.0.0.13", "10.244.3.0/24 10.0.0.11"}},
		{"a wider stale range", []int{2}, func(w *world) []vpc.Change {
			wide := vpc.Route{Table: theCluster, Destination: netip.MustParsePrefix("10.244.4.0/22"), NextHop: hop(3)}
			w.AddClusterRoute(theCluster, wide.Destination, address(3))
			return []vpc.Change{
				{Op: vpc.Create, Route: vpc.Route{Table: theCluster, Destination: podCIDR(5), NextHop: hop(5)}},
				{Op: vpc.Delete, Route: wide},
			}
		}, []string{"10.244.2.0/24 10.0.0.12", "10.244.5.0/24 10.0.0.15"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			w.startMachines(1, 2, 3, 4, 5)
			for _, i := range tt.there {
				w.AddClusterRoute(theCluster, podCIDR(i), address(i))
			}
			table := w.table(t)
			changes := tt.changes(w)
			apply(t, table, changes...)
			if d := cmp.Diff(tt.want, w.routes()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if n := w.Writes(); n > 2*len(changes) {
				t.Errorf("%d writes for %d changes", n, len(changes))
			}
		})
	}
}

// What is in the way and stays (its delete failed) keeps its rival from being
// tried, and both say why.
func TestFailedDeleteHoldsItsCreate(t *testing.T) {
	w := newWorld(tencent.GlobalRoute)
	w.startMachines(1)
	w.AddClusterRoute(theCluster, podCIDR(1), address(1))
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "DeleteClusterRoute", Answer: &cloud.Answer{Code: "InternalError.VpcCommon", Message: "below"}})
	errs := table.Apply(t.Context(), []vpc.Change{
		{Op: vpc.Create, Route: vpc.Route{Table: theCluster, Destination: podCIDR(5), NextHop: hop(1)}},
		{Op: vpc.Delete, Route: w.route(1)},
	})
	for i, err := range errs {
		if vpc.ClassOf(err) != vpc.Transient || err == nil || !strings.Contains(err.Error(), "VpcCommon") {
			t.Errorf("change %d: %v", i, err)
		}
	}
	if n := len(w.Calls("CreateClusterRoute")); n != 0 {
		t.Errorf("%d creates were tried", n)
	}
}

// A truncated list must not pass for the truth.
func TestShortListIsAnError(t *testing.T) {
	w := newWorld(tencent.GlobalRoute)
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "DescribeClusterRoutes", Answer: &cloud.Answer{Body: map[string]any{"TotalCount": 2, "RouteSet": []any{}}}})
	if routes, err := table.List(t.Context()); err == nil {
		t.Errorf("List gives %v and no error", routes)
	}
}

func TestOddClusterRoutesAreListed(t *testing.T) {
	w := newWorld(tencent.GlobalRoute)
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "DescribeClusterRoutes", Answer: &cloud.Answer{Body: map[string]any{"TotalCount": 3, "RouteSet": []map[string]any{
		{"DestinationCidrBlock": "10.244.1.5/24", "GatewayIp": "10.0.0.11"},
		{"DestinationCidrBlock": nil, "GatewayIp": nil},
		{"DestinationCidrBlock": "10.244.2.0/24", "GatewayIp": "10.0.0.12"},
	}}}})
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []vpc.Route{
		{Table: theCluster, Text: "10.244.1.5/24", NextHop: "10.0.0.11", Owner: theCluster},
		{Table: theCluster, Text: "(no destination)", Owner: theCluster},
		{Table: theCluster, Destination: podCIDR(2), NextHop: "10.0.0.12", Owner: theCluster},
	}
	if d := cmp.Diff(want, routes, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
