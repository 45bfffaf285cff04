package aws_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
)

const manyNodes = 990 // with the local routes, all that the largest quota takes

// R072: as many routes as the largest table takes, from nothing, take 1.3 of the
// time that the rate dictates at most; no call is rejected and none is made
// twice. The interfaces' checks are switched off on the way, at their own rate.
func TestLargestTableFromNothing(t *testing.T) {
	for latency, check := range map[time.Duration]bool{200 * time.Millisecond: true, 4 * time.Second: false} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(func(o *emulated.Options) { o.RoutesPerTable = 1000 })
				w.DocumentedRates()
				w.Latency = latency
				w.config.WritesPerSecond = 0
				w.config.ClusterCIDRs = []netip.Prefix{prefix("10.128.0.0/10")}
				w.startChecked(check, numbers(1, manyNodes)...)
				table := w.table(t)
				var changes []vpc.Change
				for i := 1; i <= manyNodes; i++ {
					destination := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i % 256), 0}), 24)
					got, err := table.NextHop(t.Context(), node(i), vpc.IPv4)
					if err != nil || got != hop(i) {
						t.Fatalf("NextHop of node %d: %v, %v", i, got, err)
					}
					changes = append(changes, vpc.Change{Op: vpc.Create, Route: vpc.Route{Table: theTable, Destination: destination, NextHop: got}})
				}
				start := time.Now()
				apply(t, table, changes...)
				const atLeast = manyNodes / aws.DefaultWritesPerSecond * time.Second
				if took, limit := time.Since(start), atLeast*13/10; took > limit {
					t.Errorf("took %s, at most %s are wanted (the rate dictates %s)", took, limit, atLeast)
				}
				if n := len(w.Calls("ModifyNetworkInterfaceAttribute")); n != map[bool]int{true: manyNodes}[check] {
					t.Errorf("%d checks switched off", n)
				}
				if n := len(w.Calls("CreateRoute")); n != manyNodes {
					t.Errorf("%d writes", n)
				}
				if n := w.Rejected(); n != 0 {
					t.Errorf("%d calls were rejected", n)
				}
				if n := len(w.routes(theTable)); n != manyNodes {
					t.Errorf("%d routes", n)
				}
			})
		})
	}
}

// R073: a controller that asks for limits and routes in every pass reads once
// for both; and what was read is not used once something was written.
func TestOneReadingForLimitsAndList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.startMachines(numbers(1, 500)...)
		table := w.table(t)
		look := func() (n int) {
			if _, err := table.Limits(t.Context()); err != nil {
				t.Fatal(err)
			}
			routes, err := table.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := 1; i <= 500; i++ {
				if _, err := table.NextHop(t.Context(), node(i), vpc.IPv4); err != nil {
					t.Fatal(err)
				}
			}
			return len(routes)
		}
		for range 12 {
			look()
			time.Sleep(5 * time.Minute)
		}
		if n := len(w.Calls("DescribeRouteTables")); n != 12 || len(w.Calls()) != 24 || w.Writes() != 0 {
			t.Errorf("%d lists of tables, %d calls and %d writes in an idle hour of 12 passes", n, len(w.Calls()), w.Writes())
		}
		before := look()
		if _, err := table.Limits(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, table, create(1))
		if routes, err := table.List(t.Context()); err != nil || len(routes) != before+1 {
			t.Errorf("after a create: %d routes, %v, want %d", len(routes), err, before+1)
		}
	})
}
