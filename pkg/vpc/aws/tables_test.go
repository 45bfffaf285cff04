package aws_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
)

func TestLifeCycle(t *testing.T) {
	for name, option := range variants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(option)
			w.startMachines(numbers(1, 24)...)
			table := w.table(t)
			var creates []vpc.Change
			var want []string
			for i := 1; i <= 20; i++ {
				creates = append(creates, create(i))
				want = append(want, fmt.Sprintf("%s %s", podCIDR(i), hop(i)))
			}
			slices.Sort(want)
			apply(t, table, creates...)
			if d := cmp.Diff(want, w.routes(theTable)); d != "" {
				t.Fatalf("after creation (-want +got):\n%s", d)
			}
			apply(t, table, creates...) // exactly these are there: read back, success
			if d := cmp.Diff(want, w.routes(theTable)); d != "" {
				t.Fatalf("after the same again (-want +got):\n%s", d)
			}
			old := listed(t, table, podCIDR(3))
			moved := route(3)
			moved.NextHop = hop(23)
			w.Forget()
			apply(t, table, vpc.Change{Op: vpc.Replace, Route: moved, Old: old})
			if got := listed(t, table, podCIDR(3)); got.NextHop != hop(23) {
				t.Errorf("replaced %+v by %+v", old, got)
			}
			if n := len(w.Calls("DeleteRoute", "CreateRoute")); n != 0 {
				t.Errorf("a replace deleted or created %d times: it must be done in place", n)
			}
			var deletes []vpc.Change
			for i := 1; i <= 20; i++ {
				deletes = append(deletes, vpc.Change{Op: vpc.Delete, Route: listed(t, table, podCIDR(i))})
			}
			w.Remove(theTable, podCIDR(5).String()) // somebody was faster
			apply(t, table, deletes...)
			apply(t, table, deletes...)
			if got := w.routes(theTable); len(got) != 0 {
				t.Errorf("left after deletion: %v", got)
			}
		})
	}
}

// One bad change among good ones: it alone fails, with its own reason.
func TestBadChangeAmongGoodOnes(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(w *world)
		bad   func() vpc.Change
		class vpc.Class
		text  string
	}{
		{"the range leads elsewhere", func(w *world) {
			w.AddRoute(theTable, emulated.Route{DestinationCidrBlock: "10.244.30.0/24", NetworkInterfaceID: "eni-9"})
		}, func() vpc.Change { return create(30) }, vpc.Exists, "10.244.30.0/24 by eni-9"},
		{"no such interface", func(*world) {}, func() vpc.Change { return create(31) }, vpc.NotFound, "InvalidNetworkInterfaceID.NotFound"},
		{"no interface at all", func(*world) {}, func() vpc.Change {
			c := create(1)
			c.Route.NextHop = "10.0.0.11"
			return c
		}, vpc.Invalid, "not a network interface"},
		{"replace of what is gone", func(*world) {}, func() vpc.Change {
			return vpc.Change{Op: vpc.Replace, Route: route(30), Old: route(30)}
		}, vpc.NotFound, "gone"},
		{"the table is gone", func(*world) {}, func() vpc.Change {
			c := create(30)
			c.Route.Table = "rtb-none"
			return c
		}, vpc.NotFound, "InvalidRouteTableID.NotFound"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.startMachines(numbers(1, 30)...)
			tt.setUp(w)
			table := w.table(t)
			var changes []vpc.Change
			for i := 1; i <= 20; i++ {
				changes = append(changes, create(i))
			}
			changes = slices.Insert(changes, 13, tt.bad())
			for i, err := range table.Apply(t.Context(), changes) {
				if i != 13 && err != nil {
					t.Errorf("good change %d: %v", i, err)
				}
				if i == 13 && (err == nil || vpc.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.text)) {
					t.Errorf("bad change: %v (%v), want %v: %q", err, vpc.ClassOf(err), tt.class, tt.text)
				}
			}
		})
	}
}

// Between the look and the call somebody deletes the entry: ReplaceRoute then
// answers InvalidParameterValue, which is not taken for a bad request.
func TestEntryGoesBetweenLookAndReplace(t *testing.T) {
	w := newWorld()
	w.startMachines(1, 2)
	table := w.table(t)
	apply(t, table, create(1))
	moved := route(1)
	moved.NextHop = hop(2)
	looked := false
	w.Watch(func(c cloud.Call) {
		if c.Operation == "DescribeRouteTables" && !looked {
			looked = true
			w.Remove(theTable, podCIDR(1).String())
		}
	})
	err := table.Apply(t.Context(), []vpc.Change{{Op: vpc.Replace, Route: moved, Old: route(1)}})[0]
	if err == nil || vpc.ClassOf(err) != vpc.NotFound {
		t.Errorf("%v (%v), want it not found", err, vpc.ClassOf(err))
	}
	if n := len(w.Calls("ReplaceRoute")); n != 1 {
		t.Errorf("%d calls of ReplaceRoute", n)
	}
}

// R070: a full table takes what fits; the rest is told so, and a delete in front
// of a create makes its room first.
func TestFullTable(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.RoutesPerTable = 52 }) // two of them local
	w.startMachines(numbers(1, 60)...)
	table := w.table(t)
	var changes []vpc.Change
	for i := 1; i <= 60; i++ {
		changes = append(changes, create(i))
	}
	full := 0
	for i, err := range table.Apply(t.Context(), changes) {
		if err != nil && vpc.ClassOf(err) == vpc.Quota {
			full++
		} else if err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	if n := len(w.routes(theTable)); n != 50 || full != 10 {
		t.Errorf("%d routes are there and %d were refused, want 50 and 10", n, full)
	}
	limits, err := table.Limits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]vpc.TableLimits{{Table: theTable, Used: 52, Max: 52}}, limits.Tables); d != "" {
		t.Errorf("limits (-want +got):\n%s", d)
	}
	gone := listed(t, table, netip.MustParsePrefix(strings.Fields(w.routes(theTable)[0])[0]))
	free := slices.IndexFunc(changes, func(c vpc.Change) bool {
		return !slices.Contains(w.routes(theTable), fmt.Sprintf("%s %s", c.Route.Destination, c.Route.NextHop))
	})
	w.Inject(cloud.Fault{Operation: "DeleteRoute", Delay: 100 * time.Millisecond}) // a create that did not wait would be refused
	apply(t, table, vpc.Change{Op: vpc.Delete, Route: gone}, changes[free])
	six := changes[0]
	six.Route.Destination = prefix("fd00:10:244:1::/64")
	apply(t, table, six) // the families are counted apart
}

// Strangers and odd entries are listed, with what they lead to, and a resync
// leaves them alone. Nothing is ours but by the ledger.
func TestStrangersAreListedAndSafe(t *testing.T) {
	w := newWorld()
	w.startMachines(1, 2, 9)
	for _, r := range append(slices.Clone(oddRoutes),
		emulated.Route{DestinationCidrBlock: "10.244.40.0/24", GatewayID: "vgw-1", Origin: "EnableVgwRoutePropagation"},
		emulated.Route{DestinationCidrBlock: "10.244.41.0/24", NetworkInterfaceID: "eni-9"},
		emulated.Route{DestinationCidrBlock: "10.244.42.0/24", NetworkInterfaceID: "eni-gone"},
		emulated.Route{DestinationIpv6CidrBlock: "fd00:10:244:9::/64", TransitGatewayID: "tgw-1"},
	) {
		w.AddRoute(theTable, r)
	}
	table := w.table(t)
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range routes {
		got = append(got, fmt.Sprintf("%v|%s|%s|%v", r.Destination, r.Text, r.NextHop, r.Blackhole))
	}
	want := []string{
		"10.0.0.0/16||local|false", "10.1.0.0/16||local|false", "fd00:a::/56||local|false",
		"0.0.0.0/0||nat-1|false",
		"invalid Prefix|pl-1|vpce-1|false",
		"192.168.10.0/24||vgw-1|false",
		"192.168.11.0/24||pcx-1|true",
		"invalid Prefix|(no destination)|eni-1|false",
		"10.244.40.0/24||vgw-1|false",
		"10.244.41.0/24||eni-9|false",
		"10.244.42.0/24||eni-gone|true",
		"fd00:10:244:9::/64||tgw-1|false",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	before := w.Routes(theTable)
	nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1), podCIDR(41): node(2)}
	for range 3 {
		if _, err := w.resync(t.Context(), table, nodes); err != nil {
			t.Error(err)
		}
	}
	w.Remove(theTable, podCIDR(1).String())
	if d := cmp.Diff(before, w.Routes(theTable)); d != "" {
		t.Errorf("a resync changed strangers (-before +after):\n%s", d)
	}
	for _, r := range routes[:3] { // local ones, whoever asks for it
		if err := table.Apply(t.Context(), []vpc.Change{{Op: vpc.Delete, Route: r}})[0]; err == nil || vpc.ClassOf(err) != vpc.Invalid {
			t.Errorf("delete of the local route %s: %v", r.Destination, err)
		}
	}
}

func TestTablesBySelection(t *testing.T) {
	tests := []struct {
		name    string
		setUp   func(w *world)
		want    []string
		wantErr string // of NextHop for the far node
	}{
		{"by two ids", func(w *world) { w.config.Tables = []string{farTable, theTable} }, []string{farTable, theTable}, ""},
		{"by id without a VPC id", func(w *world) { w.config.VpcID = "" }, []string{theTable}, "subnet-far, which uses route table rtb-far"},
		{"those that subnets use", func(w *world) { w.config.Tables = nil }, []string{farTable, theTable}, ""},
		{"those that subnets use, the main table by one without its own", func(w *world) {
			w.config.Tables = nil
			w.AddSubnet(theVPC, "subnet-rest", prefix("10.1.64.0/18"), "")
		}, []string{farTable, mainTable, theTable}, ""},
		// R068: subnet and table are named, no silent success.
		{"by id, a node in a subnet of another table", func(*world) {}, []string{theTable}, "subnet-far, which uses route table rtb-far"},
		{"by tag, a node in a subnet of another table", func(w *world) { w.config.Tables, w.config.TableTag = nil, "vpcroute=yes" }, []string{theTable}, "subnet-far, which uses route table rtb-far"},
		{"by id, a node in a subnet of the main table", func(w *world) { w.Attach("subnet-far", "") }, []string{theTable}, "subnet-far, which uses route table rtb-main"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.startMachines(1)
			far := w.startFar()
			tt.setUp(w)
			table := w.table(t)
			if got, err := table.NextHop(t.Context(), node(1), vpc.IPv4); err != nil || got != hop(1) {
				t.Errorf("NextHop of the near node: %v, %v", got, err)
			}
			got, err := table.NextHop(t.Context(), far, vpc.IPv4)
			checkHop(t, got, err, "eni-250", vpc.Invalid, tt.wantErr)
			limits, err := table.Limits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var tables []string
			for _, l := range limits.Tables {
				tables = append(tables, l.Table)
			}
			if d := cmp.Diff(tt.want, tables); d != "" {
				t.Errorf("managed tables (-want +got):\n%s", d)
			}
		})
	}
}

// R068: a subnet that is added later is found at the next resync.
func TestSubnetAddedLater(t *testing.T) {
	w := newWorld()
	w.config.Tables = nil
	w.startMachines(1)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1)}
	if _, err := w.resync(t.Context(), table, nodes); err != nil {
		t.Fatal(err)
	}
	w.AddSubnet(theVPC, "subnet-rest", prefix("10.1.64.0/18"), "")
	if _, err := w.resync(t.Context(), table, nodes); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{theTable, farTable, mainTable} {
		if d := cmp.Diff([]string{"10.244.1.0/24 eni-1"}, w.routes(id)); d != "" {
			t.Errorf("%s (-want +got):\n%s", id, d)
		}
	}
}

func TestSelectionsThatFitNothing(t *testing.T) {
	tests := []struct {
		name   string
		config func(c *aws.Config)
		want   string
	}{
		{"no such table", func(c *aws.Config) { c.Tables = []string{"rtb-none"} }, "route table rtb-none: not in VPC vpc-1"},
		{"no such table, no VPC id", func(c *aws.Config) { c.Tables, c.VpcID = []string{"rtb-none"}, "" }, "rtb-none"},
		{"tables of two VPCs", func(c *aws.Config) { c.Tables, c.VpcID = []string{theTable, "rtb-other"}, "" }, "all tables must be of one VPC"},
		{"no table with the tag", func(c *aws.Config) { c.Tables, c.TableTag = nil, "vpcroute=no" }, `table tag "vpcroute=no"`},
		{"no such VPC", func(c *aws.Config) { c.Tables, c.VpcID = nil, "vpc-none" }, "VPC vpc-none: it has no route table"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.AddVPC("vpc-2", "rtb-other", prefix("10.9.0.0/16"))
			tt.config(&w.config)
			if _, err := aws.New(t.Context(), w.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want %q", err, tt.want)
			}
		})
	}
}

// 130 tables and 2,500 interfaces are more than one page each, and a list that
// breaks off or goes round in a circle is an error.
func TestPaging(t *testing.T) {
	w := newWorld()
	w.startMachines(numbers(1, 2500)...)
	for i := range 130 {
		w.AddTable(theVPC, fmt.Sprintf("rtb-x%03d", i), map[string]string{"many": "yes"})
	}
	w.config.Tables, w.config.TableTag = nil, "many=yes"
	table := w.table(t)
	limits, err := table.Limits(t.Context())
	if err != nil || len(limits.Tables) != 130 {
		t.Fatalf("%d tables, %v", len(limits.Tables), err)
	}
	_, err = table.NextHop(t.Context(), node(2499), vpc.IPv4)
	if err == nil || !strings.Contains(err.Error(), "its interface eni-2499") {
		t.Errorf("the last interface: %v", err)
	}
	if n := len(w.Calls("DescribeNetworkInterfaces")); n != 3 {
		t.Errorf("%d calls for the interfaces, want 3 pages", n)
	}
	w.Inject(cloud.Fault{Operation: "DescribeRouteTables", After: 1, Times: 1, Answer: &cloud.Answer{Code: "InternalError"}})
	_, _ = table.List(t.Context()) // may use what Limits read
	if routes, err := table.List(t.Context()); err == nil {
		t.Errorf("List passes over a missing page: %d routes", len(routes))
	}
}

// R083: several interfaces, and every provider ID that is known.
func TestNextHop(t *testing.T) {
	w := newWorld()
	w.AddInterfaces(
		emulated.Interface{ID: "eni-a0", Subnet: "subnet-near", Instance: "i-0000000a", Addresses: addrs("10.0.0.20", "fd00:a::20")},
		emulated.Interface{ID: "eni-a1", Subnet: "subnet-near", Instance: "i-0000000a", Device: 1, Addresses: addrs("10.0.0.21", "10.0.0.22", "fd00:a::21")},
		emulated.Interface{ID: "eni-a2", Subnet: "subnet-near", Instance: "i-0000000a", Device: 2, Addresses: addrs("10.0.0.23")},
		emulated.Interface{ID: "eni-b0", Subnet: "subnet-near", Instance: "i-0123456789abcdef0", Addresses: addrs("10.0.0.30")},
		emulated.Interface{ID: "eni-spare", Subnet: "subnet-near", Addresses: addrs("10.0.0.40")},
	)
	tests := []struct {
		name, id  string
		addresses []netip.Addr
		want      vpc.NextHop
		class     vpc.Class
		text      string
	}{
		{"zone and instance", "aws:///eu-central-1a/i-0123456789abcdef0", addrs("10.0.0.30"), "eni-b0", 0, ""},
		{"no zone", "aws:////i-0123456789abcdef0", addrs("10.0.0.30"), "eni-b0", 0, ""},
		{"instance alone", "i-0123456789abcdef0", addrs("10.0.0.30"), "eni-b0", 0, ""},
		{"old short instance id, first of three interfaces", "aws:///z/i-0000000a", addrs("10.0.0.20"), "eni-a0", 0, ""},
		{"the second of three interfaces", "aws:///z/i-0000000a", addrs("10.0.0.21"), "eni-a1", 0, ""},
		{"a secondary address of it", "aws:///z/i-0000000a", addrs("10.0.0.22"), "eni-a1", 0, ""},
		{"its IPv6 address", "aws:///z/i-0000000a", addrs("fd00:a::21"), "eni-a1", 0, ""},
		{"the third", "aws:///z/i-0000000a", addrs("192.168.1.1", "10.0.0.23"), "eni-a2", 0, ""},
		{"no address, the first interface", "aws:///z/i-0000000a", nil, "eni-a0", 0, ""},
		{"no provider ID", "", addrs("10.0.0.22"), "eni-a1", 0, ""},
		{"no provider ID, IPv4 dressed as IPv6", "", addrs("::ffff:10.0.0.22"), "eni-a1", 0, ""},
		{"another instance's address", "aws:///z/i-0123456789abcdef0", addrs("10.0.0.20"), "", vpc.NotFound, "has none of the internal addresses [10.0.0.20], but [10.0.0.30]"},
		{"no such instance", "aws:///z/i-00000bad", addrs("10.0.0.20"), "", vpc.NotFound, "no instance i-00000bad"},
		{"no such address", "", addrs("10.0.0.40"), "", vpc.NotFound, "no instance in this VPC has any of the internal addresses"},
		{"nothing known", "", nil, "", vpc.Invalid, "neither a provider ID nor an internal address"},
		{"Fargate", "aws:///eu-central-1a/1234-abcd/fargate-ip-10-0-0-1.eu-central-1.compute.internal", addrs("10.0.0.20"), "", vpc.Invalid, "Fargate"},
		{"hybrid node", "eks-hybrid:///eu-central-1/prod/mi-0a1b2c3d4e5f60718", addrs("10.0.0.20"), "", vpc.Invalid, "is not an EC2 instance"},
		{"another cloud's", "gce://p/z/i-0000000a", addrs("10.0.0.20"), "", vpc.Invalid, "is not an EC2 instance"},
		{"no machine in it", "aws:///", addrs("10.0.0.20"), "", vpc.Invalid, "is not an EC2 instance"},
	}
	table := w.table(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, family := range []vpc.Family{vpc.IPv4, vpc.IPv6} {
				got, err := table.NextHop(t.Context(), vpc.Node{Name: "a", ProviderID: tt.id, Addresses: tt.addresses}, family)
				checkHop(t, got, err, tt.want, tt.class, tt.text)
			}
		})
	}
	// R058: nodes that cannot be found do not become a flood of look-ups.
	w.Forget()
	for range 50 {
		_, _ = table.NextHop(t.Context(), vpc.Node{Name: "strange", Addresses: addrs("192.168.9.9")}, vpc.IPv4)
	}
	if n := len(w.Calls()); n > 1 {
		t.Errorf("%d calls for 50 nodes that are nowhere", n)
	}
}

func checkHop(t *testing.T, got vpc.NextHop, err error, want vpc.NextHop, class vpc.Class, text string) {
	t.Helper()
	switch {
	case text == "" && (err != nil || got != want):
		t.Errorf("%q, %v, want %q", got, err, want)
	case text != "" && (err == nil || vpc.ClassOf(err) != class || !strings.Contains(err.Error(), text)):
		t.Errorf("%v (%v), want %v: %q", err, vpc.ClassOf(err), class, text)
	}
}
