package gcp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

const manyNodes = 1000

// R072: a thousand routes from nothing take at most 1.3 of the time in which the
// documented quota lets that many changes through at an even pace, no call is
// rejected and none is made twice, however long the operations take.
func TestThousandRoutes(t *testing.T) {
	for _, operation := range []time.Duration{0, 8 * time.Second} {
		t.Run(operation.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *emulated.Options) { o.Routes, o.OperationTime = manyNodes, operation })
				w.DocumentedRates()
				w.Latency = 200 * time.Millisecond
				w.config.WritesPerSecond = 0
				var changes []vpc.Change
				for i := 1; i <= manyNodes; i++ {
					w.startMachines(i)
					changes = append(changes, create(i))
				}
				table := w.table(t)
				start := time.Now()
				apply(t, table, changes...)
				took := time.Since(start) - operation // the last one is waited for
				const quota = 1500                    // a minute
				const atLeast = manyNodes * time.Minute / quota
				if limit := atLeast * 13 / 10; took > limit {
					t.Errorf("took %s, at most %s are wanted (the quota dictates %s)", took, limit, atLeast)
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
				t.Logf("%d calls, %s; the default pace is %d a second", len(w.Calls()), took, gcp.DefaultWritesPerSecond)
			})
		})
	}
}

// R073: a pass in which nothing has changed makes one list and one read of the
// quota, and writes nothing.
func TestIdlePass(t *testing.T) {
	w := newWorld(t)
	w.startMachines(numbers(1, 3)...)
	table := w.table(t)
	apply(t, table, create(1), create(2), create(3))
	w.Forget()
	for range 12 {
		if _, err := table.Limits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := table.List(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lists, all := len(w.Calls("routes.list")), len(w.Calls()); lists != 12 || all != 24 || w.Writes() != 0 {
		t.Errorf("%d lists of %d calls, %d writes", lists, all, w.Writes())
	}
}
