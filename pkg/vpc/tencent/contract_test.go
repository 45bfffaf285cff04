package tencent_test

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

// codes are the API's words for each class of error.
var codes = map[vpc.Class]string{
	vpc.Transient:  "InternalError.VpcCommon",
	vpc.Throttled:  "RequestLimitExceeded.UinLimitExceeded",
	vpc.Quota:      "LimitExceeded",
	vpc.InProgress: "UnsupportedOperation.MutexOperationTaskRunning",
	vpc.Denied:     "UnauthorizedOperation.CamNoAuth",
}

// harness is what both modes have in common.
func harness(t *testing.T, w *world) vpctest.Harness {
	w.startMachines(numbers(0, 99)...)
	h := vpctest.Harness{
		Table:  w.table(t),
		Owner:  theCluster,
		Ranges: []netip.Prefix{clusterCIDR},
		Lost:   map[vpc.Family]vpc.NextHop{vpc.IPv4: "10.0.63.250"},
		FailNext: func(_ testing.TB, class vpc.Class) bool {
			w.Inject(cloud.Fault{Writes: true, Times: 1, Answer: &cloud.Answer{Code: codes[class], Message: "planted"}})
			return codes[class] != ""
		},
		LoseAnswer: func(testing.TB) { w.Inject(cloud.Fault{Writes: true, Times: 1, Lost: true}) },
	}
	for i := range 100 {
		h.Nodes = append(h.Nodes, node(i))
	}
	return h
}

func TestClusterTableKeepsTheContract(t *testing.T) {
	// The two that differ in everything; each by itself is in other tests.
	for _, name := range []string{"codes InternalError", "missing is an error, twin codes"} {
		option := variants()[name]
		t.Run(name, func(t *testing.T) {
			vpctest.Run(t, func(t *testing.T) vpctest.Harness {
				w := newWorld(tencent.GlobalRoute, option)
				h := harness(t, w)
				h.Tables, h.Exclusive, h.OnePerNextHop = []string{theCluster}, true, true
				h.Put = func(_ testing.TB, r vpc.Route) {
					w.AddClusterRoute(r.Table, r.Destination, netip.MustParseAddr(string(r.NextHop)))
				}
				return h
			})
		})
	}
}

func TestRouteTablesKeepTheContract(t *testing.T) {
	options := vpcVariants()
	// How a route is named, and how many in a call, other tests cover.
	maps.DeleteFunc(options, func(name string, _ func(*emulated.Options)) bool {
		return strings.HasPrefix(name, "named by") || strings.HasPrefix(name, "smaller batches")
	})
	options["reads lag"] = func(o *emulated.Options) { o.SeeAfter = time.Minute }
	for name, option := range options {
		t.Run(name, func(t *testing.T) {
			vpctest.Run(t, func(t *testing.T) vpctest.Harness { return vpcHarness(t, option, theTable) })
		})
	}
	t.Run("two tables", func(t *testing.T) {
		vpctest.Run(t, func(t *testing.T) vpctest.Harness { return vpcHarness(t, options["whole batches"], theTable, farTable) })
	})
}

func vpcHarness(t *testing.T, option func(*emulated.Options), tables ...string) vpctest.Harness {
	w := newWorld(tencent.VPC, option, func(o *emulated.Options) { o.RoutesPerTable = 12 })
	clock := cloud.NewStepClock(time.Now())
	w.Clock = clock
	w.config.Tables = tables
	clock.Step(time.Minute) // for reads that lag behind the making of this world
	h := harness(t, w)
	h.Tables, h.Max = tables, 12
	h.Dead = vpc.Node{Name: "dead", Addresses: addrs("192.168.77.1")}
	h.Put = func(_ testing.TB, r vpc.Route) {
		w.AddRoute(r.Table, emulated.Route{DestinationCidrBlock: r.Destination.String(), GatewayType: "NORMAL_CVM", GatewayId: string(r.NextHop)})
	}
	h.PutOdd = func(testing.TB) {
		off := false
		for _, r := range []emulated.Route{
			{DestinationCidrBlock: "0.0.0.0/0", GatewayType: "NAT", GatewayId: "nat-1"},
			{DestinationCidrBlock: "192.168.9.7/24", GatewayType: "VPN", GatewayId: "vpngw-1", RouteType: "NETD"},
			{DestinationCidrBlock: "192.168.10.0/24", GatewayType: "CCN", GatewayId: "ccn-1", RouteType: "CCN", Enabled: &off},
			{GatewayType: "CCN", GatewayId: "ccn-1", RouteType: "CCN"},
		} {
			w.AddRoute(theTable, r)
		}
	}
	h.Settle = func() {
		clock.Step(time.Minute)
		// What was done is seen by reading, as a controller does before it plans.
		if _, err := h.Table.List(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return h
}
