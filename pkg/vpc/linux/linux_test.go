package linux_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/linux"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

const confinedEnv = "VPCROUTE_TEST_CONFINED"

func TestMain(m *testing.M) {
	if path := os.Getenv(confinedEnv); path != "" {
		os.Exit(confined(path))
	}
	sandbox.Main(m)
}

// A router is a namespace that stands for the VPC's router, with an interface
// on the nodes' subnets 192.168.7.0/24 and fd00:7::/64.
type router struct {
	*sandbox.Namespace
	config linux.Config
}

func newRouter(t testing.TB) router {
	t.Helper()
	ns := sandbox.New(t, "vpc")
	if err := ns.Do(plug); err != nil {
		t.Fatal(err)
	}
	// The kernel adds its own routes when the links have their carrier, a moment
	// after they were set up: a link-local one for each end and the connected one.
	for deadline := time.Now().Add(30 * time.Second); strings.Count(ns.Run(t, "ip", "-6", "route")+"\n", "\n") < 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the kernel's own routes never came")
		}
	}
	return router{ns, linux.Config{Namespace: ns.Path(), Table: 100, Protocol: linux.DefaultProtocol, Owner: "prod"}}
}

// plug gives the current namespace its interface.
func plug() error {
	up := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "far0"}
	if err := netlink.LinkAdd(up); err != nil {
		return err
	}
	far, err := netlink.LinkByName("far0")
	if err != nil {
		return err
	}
	for _, link := range []netlink.Link{up, far} {
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	for _, text := range []string{"192.168.7.1/24", "fd00:7::1/64"} {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(up, addr); err != nil {
			return err
		}
	}
	return nil
}

// ip runs one "ip" command per line. Not in one "ip -batch": that confuses the
// protocols of its lines.
func (r router) ip(t testing.TB, commands string) {
	t.Helper()
	var script strings.Builder
	for line := range strings.Lines(lines(commands)) {
		script.WriteString("ip " + line)
	}
	r.Run(t, "sh", "-ec", script.String())
}

func (r router) table(t testing.TB) *linux.Table {
	t.Helper()
	table, err := linux.New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// show is the table as "ip route" prints it, without device and preference.
func (r router) show(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, family := range []string{"-4", "-6"} {
		out, err := r.Try("ip", family, "route", "show", "table", fmt.Sprint(r.config.Table))
		if err != nil && !strings.Contains(out, "does not exist") {
			t.Fatalf("ip route show: %v\n%s", err, out)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "Error:") || strings.HasPrefix(line, "Dump terminated") {
				continue
			}
			line = strings.NewReplacer(" dev up0", "", " dev lo", "", " pref medium", "").Replace(line)
			b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
	}
	return b.String()
}

func (r router) want(t testing.TB, want string) {
	t.Helper()
	if d := cmp.Diff(lines(want), r.show(t)); d != "" {
		t.Errorf("table (-want +got):\n%s", d)
	}
}

func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func route(destination, hop string) vpc.Route {
	return vpc.Route{Table: "100", Destination: netip.MustParsePrefix(destination), NextHop: vpc.NextHop(hop)}
}

func list(t testing.TB, table vpc.RouteTable) []vpc.Route {
	t.Helper()
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return routes
}

// apply makes one change and returns its answer.
func apply(t testing.TB, table vpc.RouteTable, change vpc.Change) error {
	t.Helper()
	errs := table.Apply(t.Context(), []vpc.Change{change})
	if len(errs) != 1 {
		t.Fatalf("%d answers for one change", len(errs))
	}
	return errs[0]
}

// listed finds the one entry for a destination and next hop.
func listed(t testing.TB, table vpc.RouteTable, destination, hop string) vpc.Route {
	t.Helper()
	routes := list(t, table)
	i := slices.IndexFunc(routes, func(r vpc.Route) bool {
		return r.Destination == netip.MustParsePrefix(destination) && r.NextHop == vpc.NextHop(hop)
	})
	if i < 0 {
		t.Fatalf("%s to %s is not listed: %+v", destination, hop, routes)
	}
	return routes[i]
}

func TestNewReportsEveryFault(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config linux.Config
		want   []string
	}{
		{"nothing given", linux.Config{}, []string{"protocol 0 cannot mark", "owner is empty"}},
		{"table and VRF", linux.Config{Table: 5, VRF: "red", Protocol: 201, Owner: "x"}, []string{"table 5 and VRF \"red\" are both given"}},
		{"table too large", linux.Config{Table: 1 << 32, Protocol: 201, Owner: "x"}, []string{"table 4294967296 is not a routing table id"}},
		{"negative numbers", linux.Config{Table: -1, Timeout: -1, Protocol: -1, Owner: "x"}, []string{"table -1", "timeout -1ns", "protocol -1"}},
		{"the kernel's own protocol", linux.Config{Protocol: 2, Owner: "x"}, []string{"protocol 2 cannot mark our routes"}},
		{"static routes' protocol", linux.Config{Protocol: 4, Owner: "x"}, []string{"protocol 4 cannot mark our routes"}},
		{"a routing daemon's protocol", linux.Config{Protocol: 186, Owner: "x"}, []string{"protocol 186 belongs to bgp", "for example 201"}},
		{"protocol too large", linux.Config{Protocol: 256, Owner: "x"}, []string{"protocol 256"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := linux.New(tt.config)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestNextHopIsTheNodesAddress(t *testing.T) {
	table := newRouter(t).table(t)
	addrs := func(list ...string) (addrs []netip.Addr) {
		for _, a := range list {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		return addrs
	}
	for _, tt := range []struct {
		name      string
		addresses []netip.Addr
		family    vpc.Family
		want      string // "" for an error of class Invalid
	}{
		{"IPv4", addrs("fd00:7::11", "192.168.7.11", "192.168.7.12"), vpc.IPv4, "192.168.7.11"},
		{"IPv6", addrs("192.168.7.11", "fd00:7::11"), vpc.IPv6, "fd00:7::11"},
		{"IPv4 written as IPv6", addrs("::ffff:192.168.7.11"), vpc.IPv4, "192.168.7.11"},
		{"none of the family", addrs("192.168.7.11"), vpc.IPv6, ""},
		{"none at all", nil, vpc.IPv4, ""},
		{"loopback", addrs("127.0.0.1"), vpc.IPv4, ""},
		{"link-local", addrs("fe80::1"), vpc.IPv6, ""},
		{"unspecified", addrs("0.0.0.0"), vpc.IPv4, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hop, err := table.NextHop(t.Context(), vpc.Node{Name: "a", Addresses: tt.addresses}, tt.family)
			if string(hop) != tt.want {
				t.Errorf("next hop %q, want %q", hop, tt.want)
			}
			if tt.want == "" && (err == nil || vpc.ClassOf(err) != vpc.Invalid || !strings.Contains(err.Error(), "node a")) {
				t.Errorf("error %v, want one of class Invalid that names the node", err)
			}
		})
	}
}

// The kernel knows far more kinds of entries than we make. All are listed, none
// is an error, and none but a plain gateway passes for one of ours.
func TestListShowsOddEntries(t *testing.T) {
	r := newRouter(t)
	r.ip(t, `route add 10.244.1.0/24 via 192.168.7.11 proto 201 table 100
		route add 10.244.2.0/24 via 192.168.7.12 proto static table 100
		route add default via 192.168.7.254 table 100
		route add 10.1.0.0/24 table 100 nexthop via 192.168.7.13 nexthop via 192.168.7.14
		route add 10.2.0.0/24 dev up0 table 100
		route add blackhole 10.3.0.0/24 proto 77 table 100
		route add unreachable 10.4.0.0/24 table 100
		route add throw 10.5.0.0/24 table 100
		route add local 10.6.0.0/24 dev lo table 100
		route add 10.7.0.0/24 via inet6 fd00:7::12 dev up0 table 100
		route add 10.8.0.0/24 via 192.168.7.15 table 100 metric 50
		route append 10.8.0.0/24 via 192.168.7.16 table 100 metric 50
		route add 10.9.0.0/24 via 192.168.7.15 tos 0x10 table 100
		nexthop add id 5 via 192.168.7.17 dev up0
		route add 10.10.0.0/24 nhid 5 table 100
		route add 10.11.0.0/24 encap ip id 7 dst 192.168.7.2 via 192.168.7.18 table 100
		route add fd00:1::/64 via fd00:7::11 proto 201 table 100
		route add fd00:2::/64 via fd00:7::12 proto static table 100
		route append fd00:2::/64 via fd00:7::13 proto static table 100
		route add fd00:3::/64 encap seg6 mode encap segs fd00:7::2 dev up0 table 100
		route add fd00:4::/64 encap seg6local action End dev up0 table 100
		route add fd00:5::/64 from fd00:9::/64 via fd00:7::12 table 100
		route add prohibit fd00:6::/64 table 100
		route add 10.99.0.0/24 via 192.168.7.11 proto 201 table 101`)
	var got strings.Builder
	for _, x := range list(t, r.table(t)) {
		if x.Table != "100" || x.Text != "" {
			t.Errorf("table %q, text %q of %v", x.Table, x.Text, x.Destination)
		}
		line := fmt.Sprintf("%v > %s %s", x.Destination, x.NextHop, x.Owner)
		if x.Blackhole {
			line += " blackhole"
		}
		if x.ID != "" {
			line += " id " + x.ID
		}
		got.WriteString(line + "\n")
	}
	want := `0.0.0.0/0 > 192.168.7.254 protocol boot
		10.1.0.0/24 >  protocol boot
		10.2.0.0/24 >  protocol boot
		10.3.0.0/24 >  protocol 77 blackhole id type 6
		10.4.0.0/24 >  protocol boot blackhole id type 7
		10.5.0.0/24 >  protocol boot id type 9
		10.6.0.0/24 >  protocol boot id type 2
		10.7.0.0/24 >  protocol boot
		10.8.0.0/24 > 192.168.7.15 protocol boot id metric 50
		10.8.0.0/24 > 192.168.7.16 protocol boot id metric 50
		10.9.0.0/24 >  protocol boot id tos 16
		10.10.0.0/24 > 192.168.7.17 protocol boot
		10.11.0.0/24 >  protocol boot
		10.244.1.0/24 > 192.168.7.11 prod
		10.244.2.0/24 > 192.168.7.12 protocol static
		fd00:1::/64 > fd00:7::11 prod
		fd00:2::/64 > fd00:7::12 protocol static
		fd00:2::/64 > fd00:7::13 protocol static
		fd00:3::/64 >  protocol boot
		fd00:4::/64 >  protocol boot
		fd00:5::/64 >  protocol boot
		fd00:6::/64 >  protocol boot blackhole id type 8
		`
	if d := cmp.Diff(lines(want), got.String()); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
}

func TestListOfATableThatNeverHadAnEntryIsEmpty(t *testing.T) {
	if routes := list(t, newRouter(t).table(t)); len(routes) != 0 {
		t.Errorf("listed %+v", routes)
	}
}

func TestListMarksDeadNextHops(t *testing.T) {
	r := newRouter(t)
	r.ip(t, `route add 10.244.1.0/24 via 192.168.7.11 proto 201 table 100
		route add fd00:1::/64 via fd00:7::11 proto 201 table 100
		link set far0 down`)
	// The kernel hears of a lost carrier a little later.
	live := func() []vpc.Route {
		return slices.DeleteFunc(list(t, r.table(t)), func(x vpc.Route) bool { return x.Blackhole })
	}
	for end := time.Now().Add(10 * time.Second); len(live()) > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if left := live(); len(left) > 0 {
		t.Errorf("not called blackholes though their link is down: %+v", left)
	}
}

// The table is read in full when it is far longer than one answer of the kernel.
func TestListOfManyRoutes(t *testing.T) {
	const n = 5000
	r := newRouter(t)
	table := r.table(t)
	var changes []vpc.Change
	for i := range n {
		changes = append(changes, vpc.Change{Op: vpc.Create, Route: route(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255), "192.168.7.11")})
	}
	for i, err := range table.Apply(t.Context(), changes) {
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	if got := len(list(t, table)); got != n {
		t.Errorf("%d routes listed, want %d", got, n)
	}
	limits, err := table.Limits(t.Context())
	want := vpc.Limits{Tables: []vpc.TableLimits{{Table: "100", Used: n}}, Families: []vpc.Family{vpc.IPv4, vpc.IPv6}}
	if d := cmp.Diff(want, limits); d != "" || err != nil {
		t.Errorf("limits (-want +got):\n%s%v", d, err)
	}
}

func TestTableIsMainByDefault(t *testing.T) {
	r := newRouter(t)
	r.config.Table = 0
	table := r.table(t)
	change := vpc.Change{Op: vpc.Create, Route: route("10.244.1.0/24", "192.168.7.11")}
	change.Route.Table = "254"
	if err := apply(t, table, change); err != nil {
		t.Fatal(err)
	}
	r.config.Table = 254
	if got := r.show(t); !strings.Contains(got, "10.244.1.0/24 via 192.168.7.11 proto 201\n") {
		t.Errorf("main table:\n%s", got)
	}
}

func TestApplyRefusesAnotherTable(t *testing.T) {
	r := newRouter(t)
	change := vpc.Change{Op: vpc.Create, Route: route("10.244.1.0/24", "192.168.7.11")}
	change.Route.Table = "101"
	if err := apply(t, r.table(t), change); vpc.ClassOf(err) != vpc.NotFound || !strings.Contains(err.Error(), `table "101" is not the managed table 100`) {
		t.Errorf("error %v, want NotFound", err)
	}
}

// A foreign entry under another metric is a foreign entry: the kernel would take
// ours beside it, and packets would take the better of the two.
func TestCreateSeesEntriesOfEveryMetric(t *testing.T) {
	r := newRouter(t)
	r.ip(t, `route add 10.244.1.0/24 via 192.168.7.99 proto static metric 50 table 100
		route add fd00:1::/64 via fd00:7::99 proto static metric 50 table 100`)
	before := r.show(t)
	for _, x := range []vpc.Route{route("10.244.1.0/24", "192.168.7.11"), route("fd00:1::/64", "fd00:7::11")} {
		err := apply(t, r.table(t), vpc.Change{Op: vpc.Create, Route: x})
		if vpc.ClassOf(err) != vpc.Exists || err == nil || !strings.Contains(err.Error(), `of "protocol static" to `) {
			t.Errorf("create %v: error %v, want Exists that names the entry", x.Destination, err)
		}
	}
	r.want(t, before)
}

// The kernel's own replace overwrites the first entry with the same metric,
// whosever it is; ours must not.
func TestReplaceKeepsForeignEntriesOfTheSameDestination(t *testing.T) {
	r := newRouter(t)
	r.ip(t, `route add 10.244.1.0/24 via 192.168.7.99 proto static table 100
		route append 10.244.1.0/24 via 192.168.7.11 proto 201 table 100
		route add fd00:1::/64 via fd00:7::11 proto 201 table 100
		route append fd00:1::/64 via fd00:7::99 proto static table 100`)
	for _, x := range []struct{ destination, old, hop string }{
		{"10.244.1.0/24", "192.168.7.11", "192.168.7.12"},
		{"fd00:1::/64", "fd00:7::11", "fd00:7::12"},
	} {
		table := r.table(t)
		change := vpc.Change{Op: vpc.Replace, Route: route(x.destination, x.hop), Old: listed(t, table, x.destination, x.old)}
		if err := apply(t, table, change); err != nil {
			t.Errorf("replace %s: %v", x.destination, err)
		}
	}
	r.want(t, `10.244.1.0/24 via 192.168.7.99 proto static
		10.244.1.0/24 via 192.168.7.12 proto 201
		fd00:1::/64 proto static metric 1024
		nexthop via fd00:7::99 weight 1
		nexthop via fd00:7::12 weight 1`)
}

// A path that a stranger added to an IPv6 entry of ours looks like ours, because
// the kernel shows one protocol for all paths. It is refused by the kernel and
// reported, not deleted and not called gone.
func TestDeleteOfAForeignPathOfOurEntry(t *testing.T) {
	r := newRouter(t)
	r.ip(t, `route add fd00:1::/64 via fd00:7::11 proto 201 table 100
		route append fd00:1::/64 via fd00:7::99 proto static table 100`)
	before := r.show(t)
	table := r.table(t)
	err := apply(t, table, vpc.Change{Op: vpc.Delete, Route: listed(t, table, "fd00:1::/64", "fd00:7::99")})
	if vpc.ClassOf(err) != vpc.Exists || err == nil {
		t.Errorf("error %v, want Exists", err)
	}
	r.want(t, before)
	if err := apply(t, table, vpc.Change{Op: vpc.Delete, Route: listed(t, table, "fd00:1::/64", "fd00:7::11")}); err != nil {
		t.Errorf("delete our own path: %v", err)
	}
	r.want(t, "fd00:1::/64 via fd00:7::99 proto static metric 1024")
}

// An interrupted replace leaves two entries of ours; each can be deleted alone.
func TestDeleteOneOfTwoEntriesOfOurs(t *testing.T) {
	r := newRouter(t)
	r.ip(t, `route add 10.244.1.0/24 via 192.168.7.11 proto 201 table 100
		route append 10.244.1.0/24 via 192.168.7.12 proto 201 table 100
		route add 10.244.2.0/24 via 192.168.7.11 proto 201 table 100
		route add 10.244.2.0/24 via 192.168.7.11 proto 201 metric 7 table 100
		route add 10.244.3.0/24 via 192.168.7.11 proto 201 table 100
		route append blackhole 10.244.3.0/24 proto 201 table 100
		route add 10.244.4.0/24 via 192.168.7.11 proto 201 table 100
		route append 10.244.4.0/24 proto 201 table 100 nexthop via 192.168.7.13 nexthop via 192.168.7.14
		route add fd00:1::/64 via fd00:7::11 proto 201 table 100
		route append fd00:1::/64 via fd00:7::12 proto 201 table 100`)
	table := r.table(t)
	for _, x := range []struct{ destination, hop, id string }{
		{"10.244.1.0/24", "192.168.7.11", ""},
		{"10.244.2.0/24", "192.168.7.11", "metric 7"},
		{"10.244.3.0/24", "", ""},
		{"10.244.4.0/24", "", ""},
		{"fd00:1::/64", "fd00:7::11", ""},
	} {
		gone := route(x.destination, x.hop)
		gone.ID = x.id
		if err := apply(t, table, vpc.Change{Op: vpc.Delete, Route: gone}); err != nil {
			t.Errorf("delete %+v: %v", x, err)
		}
	}
	r.want(t, `10.244.1.0/24 via 192.168.7.12 proto 201
		10.244.2.0/24 via 192.168.7.11 proto 201
		10.244.3.0/24 via 192.168.7.11 proto 201
		10.244.4.0/24 via 192.168.7.11 proto 201
		fd00:1::/64 via fd00:7::12 proto 201 metric 1024`)
}

// A delete that names a stranger's entry is refused, and one of ours that is
// gone does not find a stranger's in its place.
func TestDeleteDoesNotTouchForeignEntries(t *testing.T) {
	r := newRouter(t)
	r.ip(t, "route add 10.244.1.0/24 via 192.168.7.11 proto static table 100")
	before := r.show(t)
	table := r.table(t)
	foreign := listed(t, table, "10.244.1.0/24", "192.168.7.11")
	if err := apply(t, table, vpc.Change{Op: vpc.Delete, Route: foreign}); err == nil || vpc.ClassOf(err) != vpc.Denied {
		t.Errorf("delete of a stranger's entry: %v, want Denied", err)
	}
	ours := foreign
	ours.Owner = r.config.Owner
	if err := apply(t, table, vpc.Change{Op: vpc.Delete, Route: ours}); err != nil {
		t.Errorf("delete of what is gone: %v", err)
	}
	r.want(t, before)
}

// Entries of our protocol that we would never make are still ours to delete and
// to replace, and beside them everything stays.
func TestOddEntriesOfOurProtocol(t *testing.T) {
	r := newRouter(t)
	odd := `route add blackhole 10.244.1.0/24 proto 201 table 100
		route add 10.244.2.0/24 proto 201 table 100 nexthop via 192.168.7.13 nexthop via 192.168.7.14
		route add 10.244.3.0/24 dev up0 proto 201 table 100
		nexthop add id 5 via 192.168.7.17 dev up0
		route add 10.244.4.0/24 nhid 5 proto 201 table 100
		route add blackhole fd00:1::/64 proto 201 table 100
		route add fd00:2::/64 dev up0 proto 201 table 100`
	r.ip(t, odd)
	table := r.table(t)
	var replaces, deletes []vpc.Change
	for i, x := range list(t, table) {
		hop := fmt.Sprintf("192.168.7.%d", 30+i)
		if x.Destination.Addr().Is6() {
			hop = fmt.Sprintf("fd00:7::%d", 30+i)
		}
		replaces = append(replaces, vpc.Change{Op: vpc.Replace, Route: route(x.Destination.String(), hop), Old: x})
		deletes = append(deletes, vpc.Change{Op: vpc.Delete, Route: x})
	}
	if err := errors.Join(table.Apply(t.Context(), replaces)...); err != nil {
		t.Errorf("replace: %v", err)
	}
	r.want(t, `10.244.1.0/24 via 192.168.7.30 proto 201
		10.244.2.0/24 via 192.168.7.31 proto 201
		10.244.3.0/24 via 192.168.7.32 proto 201
		10.244.4.0/24 via 192.168.7.33 proto 201
		fd00:1::/64 via fd00:7::34 proto 201 metric 1024
		fd00:2::/64 via fd00:7::35 proto 201 metric 1024`)
	r.Run(t, "ip", "-6", "route", "flush", "table", "100")
	r.ip(t, "route flush table 100\n nexthop flush\n"+odd)
	if err := errors.Join(table.Apply(t.Context(), deletes)...); err != nil {
		t.Errorf("delete: %v", err)
	}
	r.want(t, "")
}

// While a route is replaced again and again, the kernel always has a route for
// the range. For IPv6 the table is asked, not a packet's look-up: that may meet
// the entry that is just being removed and fail, with the kernel's own replace
// as with ours.
func TestReplaceNeverLeavesAGap(t *testing.T) {
	r := newRouter(t)
	r.config.Table = 254
	table := r.table(t)
	for _, tt := range []struct {
		destination, a, b string
		routed            func(t *testing.T) bool
	}{
		{"10.244.1.0/24", "192.168.7.11", "192.168.7.12", func(*testing.T) bool {
			return r.Do(func() error { _, err := netlink.RouteGet(net.IPv4(10, 244, 1, 9)); return err }) == nil
		}},
		{"fd00:1::/64", "fd00:7::11", "fd00:7::12", func(t *testing.T) bool {
			return slices.ContainsFunc(list(t, table), func(x vpc.Route) bool {
				return x.Destination == netip.MustParsePrefix("fd00:1::/64")
			})
		}},
	} {
		t.Run(tt.destination, func(t *testing.T) {
			at := func(hop string) vpc.Route {
				x := route(tt.destination, hop)
				x.Table = "254"
				return x
			}
			if err := apply(t, table, vpc.Change{Op: vpc.Create, Route: at(tt.a)}); err != nil {
				t.Fatal(err)
			}
			stop, gaps := make(chan struct{}), make(chan int, 1)
			go func() { gaps <- countGaps(func() bool { return tt.routed(t) }, stop) }()
			for i := range 200 {
				old, next := tt.a, tt.b
				if i%2 == 1 {
					old, next = next, old
				}
				if err := apply(t, table, vpc.Change{Op: vpc.Replace, Route: at(next), Old: at(old)}); err != nil {
					t.Error(err)
				}
			}
			close(stop)
			if n := <-gaps; n != 0 {
				t.Errorf("no route %d times", n)
			}
		})
	}
}

// countGaps asks until stop is closed, and counts the answers that were no.
func countGaps(routed func() bool, stop <-chan struct{}) (gaps int) {
	for {
		select {
		case <-stop:
			return gaps
		default:
		}
		if !routed() {
			gaps++
		}
	}
}

func TestApplyAtOnceFromManySides(t *testing.T) {
	r := newRouter(t)
	table := r.table(t)
	var changes []vpc.Change
	for i := range 50 {
		changes = append(changes, vpc.Change{Op: vpc.Create, Route: route(fmt.Sprintf("10.244.%d.0/24", i), "192.168.7.11")})
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := errors.Join(table.Apply(t.Context(), changes)...); err != nil {
				t.Errorf("apply: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := table.List(t.Context()); err != nil {
				t.Errorf("list: %v", err)
			}
		})
	}
	wg.Wait()
	if n := len(list(t, table)); n != 50 {
		t.Errorf("%d routes, want 50", n)
	}
}

func TestNextHopThatIsOnNoSubnet(t *testing.T) {
	table := newRouter(t).table(t)
	for _, x := range []vpc.Route{route("10.244.1.0/24", "192.168.99.1"), route("fd00:1::/64", "fd00:99::1")} {
		err := apply(t, table, vpc.Change{Op: vpc.Create, Route: x})
		if vpc.ClassOf(err) != vpc.NotFound || !strings.Contains(fmt.Sprint(err), "create route "+x.Destination.String()) {
			t.Errorf("error %v, want NotFound that names the route", err)
		}
	}
}

func TestNamespaceThatIsNotThere(t *testing.T) {
	r := newRouter(t)
	r.config.Namespace = "/run/netns/nowhere"
	table := r.table(t)
	_, err := table.List(t.Context())
	if vpc.ClassOf(err) != vpc.NotFound || err == nil || !strings.Contains(err.Error(), "list routes of table 100 in /run/netns/nowhere") {
		t.Errorf("list: %v, want NotFound that names the namespace", err)
	}
	if err := apply(t, table, vpc.Change{Op: vpc.Create, Route: route("10.244.1.0/24", "192.168.7.11")}); vpc.ClassOf(err) != vpc.NotFound || err == nil {
		t.Errorf("apply: %v, want NotFound", err)
	}
	if f := table.Preflight(t.Context()); len(f) != 1 || f[0].Severity != vpc.SeverityError {
		t.Errorf("preflight: %+v, want one error", f)
	}
	r.config.Namespace = "/run"
	if _, err := r.table(t).List(t.Context()); vpc.ClassOf(err) != vpc.Invalid || err == nil {
		t.Errorf("list in a directory: %v, want Invalid", err)
	}
}

// A namespace that is made anew under the same name is the one that counts.
func TestNamespaceThatIsMadeAnew(t *testing.T) {
	r := newRouter(t)
	r.ip(t, "route add 10.244.1.0/24 via 192.168.7.11 proto 201 table 100")
	table := r.table(t)
	if n := len(list(t, table)); n != 1 {
		t.Fatalf("%d routes, want 1", n)
	}
	if err := r.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.Create(r.Name); err != nil {
		t.Fatal(err)
	}
	if n := len(list(t, table)); n != 0 {
		t.Errorf("%d routes of the old namespace listed", n)
	}
}

// A process that may look but not write: it is in a user namespace of its own.
func TestWithoutPermission(t *testing.T) {
	r := newRouter(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confinedEnv+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	var out []byte
	err := r.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func confined(string) int {
	table, err := linux.New(linux.Config{Table: 100, Protocol: 201, Owner: "prod"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := table.Apply(context.Background(), []vpc.Change{{Op: vpc.Create, Route: route("10.244.1.0/24", "192.168.7.11")}})[0]; vpc.ClassOf(err) != vpc.Denied || err == nil {
		fmt.Printf("create: %v, want Denied\n", err)
		return 1
	}
	if _, err := table.List(context.Background()); err != nil {
		fmt.Printf("list: %v\n", err)
		return 1
	}
	if f := table.Preflight(context.Background()); !slices.ContainsFunc(f, func(f vpc.Finding) bool { return f.Object == "permission" }) {
		fmt.Printf("preflight does not name the permission: %+v\n", f)
		return 1
	}
	return 0
}
