package azure_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// R072: two hundred nodes that come at once take five writes at most, a thousand
// no more than that, with the documented rates and operations of ten seconds;
// nothing is rejected.
func TestManyNodesAtOnce(t *testing.T) {
	for _, many := range []int{200, 1000} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(func(o *emulated.Options) { o.OperationTime = 10 * time.Second })
				w.DocumentedRates()
				w.Latency, w.config.PollInterval = 100*time.Millisecond, 2*time.Second
				w.config.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/10")}
				w.startMachines(numbers(1, many)...)
				table := w.table(t)
				var changes []vpc.Change
				for i := 1; i <= many; i++ {
					hop, err := table.NextHop(t.Context(), w.node(i), vpc.IPv4)
					if err != nil {
						t.Fatal(err)
					}
					destination := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i % 256), 0}), 24)
					changes = append(changes, vpc.Change{Op: vpc.Create, Route: vpc.Route{Table: theTable, Destination: destination, NextHop: hop}})
				}
				limits, err := table.Limits(t.Context())
				if err != nil || limits.Batch < many {
					t.Fatalf("a batch of %d for %d nodes, %v", limits.Batch, many, err)
				}
				apply(t, table, changes...)
				if n := w.Writes(); n > 5 {
					t.Errorf("%d writes, at most 5 are wanted", n)
				}
				if n := len(w.Calls()); n > 40 {
					t.Errorf("%d calls", n)
				}
				if n := w.Rejected(); n != 0 {
					t.Errorf("%d calls were rejected", n)
				}
				if n := len(w.routes(theTable)); n != many {
					t.Errorf("%d routes", n)
				}
			})
		})
	}
}

// R070: a table for 50 routes and 60 nodes: 50 routes, 10 answers of class
// quota, no flood, and the routes that are there stay.
func TestTableIsFull(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.RoutesPerTable = 50 })
	w.config.MaxRoutes = 50
	table := w.table(t)
	var changes []vpc.Change
	for i := range 60 {
		changes = append(changes, w.create(i))
	}
	for range 3 {
		full := 0
		for _, err := range table.Apply(t.Context(), changes) {
			if err != nil && vpc.ClassOf(err) == vpc.Quota {
				full++
			} else if err != nil {
				t.Error(err)
			}
		}
		if full != 10 || len(w.routes(theTable)) != 50 {
			t.Errorf("%d answers of class quota, %d routes", full, len(w.routes(theTable)))
		}
	}
	if n := w.Writes(); n != 1 {
		t.Errorf("%d writes", n)
	}
}
