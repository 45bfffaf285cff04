package tencent_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

const manyNodes = 1000

var wideCIDR = netip.MustParsePrefix("10.128.0.0/10")

// manyWorld has machines for a thousand nodes, the vendor's rate limits, a quota
// that was raised, and calls that take a while.
func manyWorld(t *testing.T, mode tencent.Mode, latency time.Duration) (w *world, changes []vpc.Change, nodes []vpc.Node) {
	w = newWorld(mode, func(o *emulated.Options) { o.RoutesPerTable = manyNodes })
	w.DocumentedRates()
	w.Latency = latency
	w.config.ClusterCIDRs, w.config.WritesPerSecond = []netip.Prefix{wideCIDR}, 0
	w.AddClusterTable(theCluster, theVPC, wideCIDR)
	if mode == tencent.VPC {
		w.RemoveClusterTable(theCluster)
	}
	w.startMachines(numbers(1, manyNodes)...)
	for i := 1; i <= manyNodes; i++ {
		destination := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i % 256), 0}), 24)
		changes = append(changes, vpc.Change{Op: vpc.Create, Route: vpc.Route{Table: w.name(), Destination: destination, NextHop: hop(i)}})
		nodes = append(nodes, node(i))
	}
	return w, changes, nodes
}

// R072: a thousand routes from nothing take 1.3 of the time that the rate limit
// dictates at most, no call is rejected and none is made twice.
func TestThousandClusterRoutes(t *testing.T) {
	for _, latency := range []time.Duration{200 * time.Millisecond, 4 * time.Second} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, changes, _ := manyWorld(t, tencent.GlobalRoute, latency)
				table := w.table(t)
				start := time.Now()
				apply(t, table, changes...)
				took := time.Since(start)
				const atLeast = manyNodes / tencent.DefaultWritesPerSecond * time.Second
				if limit := atLeast * 13 / 10; took > limit {
					t.Errorf("took %s, at most %s are wanted (the rate dictates %s)", took, limit, atLeast)
				}
				if n := w.Writes(); n != manyNodes {
					t.Errorf("%d writes", n)
				}
				if n := w.Rejected(); n != 0 {
					t.Errorf("%d calls were rejected", n)
				}
				if n := len(w.routes()); n != manyNodes {
					t.Errorf("%d routes", n)
				}
			})
		})
	}
}

// A thousand routes of a VPC table take a fiftieth of the calls that one call
// for each route would take, reads included.
func TestThousandVPCRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, changes, nodes := manyWorld(t, tencent.VPC, 200*time.Millisecond)
		table := w.table(t)
		for i, n := range nodes {
			if got, err := table.NextHop(t.Context(), n, vpc.IPv4); err != nil || got != hop(i+1) {
				t.Fatalf("NextHop of %s: %v, %v", n.Name, got, err)
			}
		}
		if _, err := table.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Limits(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		apply(t, table, changes...)
		if n := len(w.Calls()); n > manyNodes/50 {
			t.Errorf("%d calls for %d routes", n, manyNodes)
		}
		if n := w.Rejected(); n != 0 {
			t.Errorf("%d calls were rejected", n)
		}
		if n := len(w.routes()); n != manyNodes {
			t.Errorf("%d routes", n)
		}
		t.Logf("%d calls, %s", len(w.Calls()), time.Since(start))
	})
}

// R073: a controller that asks for limits and routes in every pass makes one
// call for both; and what it read is not used once something was written.
func TestOneReadingForLimitsAndList(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(mode)
				w.startMachines(1)
				table := w.table(t)
				look := func() (routes []vpc.Route) {
					if _, err := table.Limits(t.Context()); err != nil {
						t.Fatal(err)
					}
					routes, err := table.List(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return routes
				}
				for range 12 {
					look()
					time.Sleep(5 * time.Minute)
				}
				if n := len(w.Calls("DescribeClusterRoutes", "DescribeRouteTables")); n != 12 {
					t.Errorf("%d lists in an idle hour of 12 passes", n)
				}
				if _, err := table.Limits(t.Context()); err != nil {
					t.Fatal(err)
				}
				apply(t, table, w.create(1))
				if routes, err := table.List(t.Context()); err != nil || len(routes) != 1 {
					t.Errorf("after a create: %v, %v", routes, err)
				}
				if routes := look(); len(routes) != 1 {
					t.Errorf("in the next pass: %v", routes)
				}
			})
		})
	}
}
