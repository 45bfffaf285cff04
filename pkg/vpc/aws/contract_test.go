package aws_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
)

// variants are the behaviours on which the sources disagree or say nothing.
func variants() map[string]func(*emulated.Options) {
	return map[string]func(*emulated.Options){
		"as documented":                    func(*emulated.Options) {},
		"the same route again is no error": func(o *emulated.Options) { o.SameRouteSucceeds = true },
		"blackholes lose their name":       func(o *emulated.Options) { o.BlackholeForgets = true },
	}
}

// codes are the API's words for each class of error.
var codes = map[vpc.Class]string{
	vpc.Transient:  "InternalError",
	vpc.Throttled:  "RequestLimitExceeded",
	vpc.Quota:      "RouteLimitExceeded",
	vpc.InProgress: "IncorrectState",
	vpc.Denied:     "UnauthorizedOperation",
}

func TestContract(t *testing.T) {
	options := variants()
	options["reads lag"] = func(o *emulated.Options) { o.SeeAfter = time.Minute }
	for name, option := range options {
		t.Run(name, func(t *testing.T) {
			vpctest.Run(t, func(t *testing.T) vpctest.Harness { return harness(t, option, theTable) })
		})
	}
	t.Run("two tables", func(t *testing.T) {
		vpctest.Run(t, func(t *testing.T) vpctest.Harness { return harness(t, options["as documented"], theTable, farTable) })
	})
}

func harness(t *testing.T, option func(*emulated.Options), tables ...string) vpctest.Harness {
	w := newWorld(option, func(o *emulated.Options) { o.RoutesPerTable = 14 })
	clock := cloud.NewStepClock(time.Now())
	w.Clock = clock
	w.config.Tables = tables
	w.startMachines(numbers(0, 9)...)
	clock.Step(time.Minute) // for reads that lag behind the making of this world
	h := vpctest.Harness{
		Table: w.table(t), Tables: tables, Max: 14,
		Ranges: []netip.Prefix{clusterCIDR, clusterCIDR6},
		Dead:   vpc.Node{Name: "dead", ProviderID: "aws:///eu-central-1a/i-deaddead", Addresses: addrs("10.0.63.250")},
		Lost:   map[vpc.Family]vpc.NextHop{vpc.IPv4: "eni-0000dead", vpc.IPv6: "eni-0000dead"},
		Put: func(_ testing.TB, r vpc.Route) {
			e := emulated.Route{NetworkInterfaceID: string(r.NextHop)}
			if r.Destination.Addr().Is4() {
				e.DestinationCidrBlock = r.Destination.String()
			} else {
				e.DestinationIpv6CidrBlock = r.Destination.String()
			}
			w.AddRoute(r.Table, e)
		},
		PutOdd: func(testing.TB) {
			for _, r := range oddRoutes {
				w.AddRoute(theTable, r)
			}
		},
		Terminate: func(_ testing.TB, n vpc.Node) { w.Terminate(n.ProviderID[len(n.ProviderID)-len(instance(0)):]) },
		FailNext: func(_ testing.TB, class vpc.Class) bool {
			w.Inject(cloud.Fault{Writes: true, Times: 1, Answer: &cloud.Answer{Code: codes[class], Message: "planted"}})
			return codes[class] != ""
		},
		LoseAnswer: func(testing.TB) { w.Inject(cloud.Fault{Writes: true, Times: 1, Lost: true}) },
	}
	for i := range 10 {
		h.Nodes = append(h.Nodes, node(i))
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

// oddRoutes are what others put into a table.
var oddRoutes = []emulated.Route{
	{DestinationCidrBlock: "0.0.0.0/0", NatGatewayID: "nat-1"},
	{DestinationPrefixListID: "pl-1", GatewayID: "vpce-1"},
	{DestinationCidrBlock: "192.168.10.0/24", GatewayID: "vgw-1", Origin: "EnableVgwRoutePropagation"},
	{DestinationCidrBlock: "192.168.11.0/24", VpcPeeringConnectionID: "pcx-1", State: "blackhole"},
	{NetworkInterfaceID: "eni-1"},
}
