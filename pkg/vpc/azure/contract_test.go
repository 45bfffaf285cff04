package azure_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// codes are the API's words for each class of error.
var codes = map[vpc.Class]string{
	vpc.Transient:  "InternalServerError",
	vpc.Throttled:  "TooManyRequests",
	vpc.Quota:      "RouteTableRoutesLimitExceeded",
	vpc.InProgress: "RetryableErrorDueToAnotherOperation",
	vpc.Denied:     "AuthorizationFailed",
}

func harness(t *testing.T, option func(*emulated.Options), tables ...string) vpctest.Harness {
	w := newWorld(func(o *emulated.Options) { o.RoutesPerTable = 12 }, option)
	w.startMachines(numbers(0, 20)...)
	w.config.Tables, w.config.MaxRoutes = tables, 12
	h := vpctest.Harness{
		Table:  w.table(t),
		Tables: tables,
		Owner:  theCluster,
		Ranges: []netip.Prefix{clusterCIDR, clusterCIDR6},
		Max:    12,
		Put: func(_ testing.TB, r vpc.Route) {
			w.AddRoute(r.Table, emulated.Route{Name: "stranger-" + strings.ReplaceAll(r.Destination.Addr().StringExpanded(), ":", "-"), AddressPrefix: r.Destination.String(), NextHopType: "VirtualAppliance", NextHopIPAddress: string(r.NextHop)})
		},
		PutOdd: func(testing.TB) {
			for _, r := range []emulated.Route{
				{Name: "default", AddressPrefix: "0.0.0.0/0", NextHopType: "Internet"},
				{Name: "tag", AddressPrefix: "AzureCloud.WestEurope", NextHopType: "Internet"},
				{Name: "none", AddressPrefix: "192.168.0.0/16", NextHopType: "None"},
				{Name: "on-premises", AddressPrefix: "172.16.0.0/12", NextHopType: "VirtualNetworkGateway"},
			} {
				w.AddRoute(theTable, r)
			}
		},
		FailNext: func(_ testing.TB, class vpc.Class) bool {
			w.Inject(cloud.Fault{Writes: true, Times: 1, Answer: &cloud.Answer{Code: codes[class], Message: "planted"}})
			return codes[class] != ""
		},
		LoseAnswer: func(testing.TB) { w.Inject(cloud.Fault{Writes: true, Times: 1, Lost: true}) },
	}
	for i := range 20 {
		h.Nodes = append(h.Nodes, w.node(i))
	}
	h.Dead = w.node(99)
	return h
}

func TestTablesKeepTheContract(t *testing.T) {
	for name, option := range map[string]func(*emulated.Options){
		"writes are done at once": func(*emulated.Options) {},
		"writes start operations": func(o *emulated.Options) { o.Polls = 2 },
		"small pages":             func(o *emulated.Options) { o.PageSize = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			vpctest.Run(t, func(t *testing.T) vpctest.Harness { return harness(t, option, theTable) })
		})
	}
	t.Run("two tables", func(t *testing.T) {
		vpctest.Run(t, func(t *testing.T) vpctest.Harness {
			return harness(t, func(o *emulated.Options) { o.OperationTime = time.Millisecond }, theTable, farTable)
		})
	})
}
