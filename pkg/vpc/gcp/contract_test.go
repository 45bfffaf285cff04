package gcp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

// atOnce are the API's refusals of a call for each class of error, and later
// those of an operation that it had accepted.
var (
	atOnce = map[vpc.Class]*cloud.Answer{
		vpc.Transient:  {Code: "backendError", Message: "planted"},
		vpc.Throttled:  {Code: "rateLimitExceeded", Message: "planted"},
		vpc.Quota:      {Code: "quotaExceeded", Message: "planted"},
		vpc.InProgress: {Code: "resourceNotReady", Message: "planted"},
		vpc.Denied:     {Code: "forbidden", Message: "planted"},
	}
	later = map[vpc.Class]*cloud.Answer{
		vpc.Transient:  emulated.FailedOperation("INTERNAL_ERROR", "planted"),
		vpc.Throttled:  emulated.FailedOperation("RATE_LIMIT_EXCEEDED", "planted"),
		vpc.Quota:      emulated.FailedOperation("QUOTA_EXCEEDED", "planted"),
		vpc.InProgress: emulated.FailedOperation("RESOURCE_NOT_READY", "planted"),
		vpc.Denied:     emulated.FailedOperation("PERMISSIONS_ERROR", "planted"),
	}
)

// variants are the behaviours that sources disagree about or leave open.
func variants() map[string]func(*emulated.Options) {
	return map[string]func(*emulated.Options){
		"refused at once": func(o *emulated.Options) { o.QuotaAtOnce = true },
		"refused by the operation": func(o *emulated.Options) {
			o.MissingInOperation = true
			o.OperationTime = 5 * time.Millisecond
		},
		"small pages": func(o *emulated.Options) { o.PageSize = 3 },
	}
}

func TestNetworkKeepsTheContract(t *testing.T) {
	options := variants()
	options["lists lag"] = func(o *emulated.Options) { o.SeeAfter = time.Minute }
	for name, option := range options {
		t.Run(name, func(t *testing.T) {
			vpctest.Run(t, func(t *testing.T) vpctest.Harness {
				answers := atOnce
				if name == "refused by the operation" {
					answers = later
				}
				h := harness(newWorld(t, option, few), t, answers, name == "lists lag")
				h.Lost = map[vpc.Family]vpc.NextHop{vpc.IPv4: hop(200), vpc.IPv6: hop(200)}
				return h
			})
		})
	}
	t.Run("machines by address", func(t *testing.T) {
		vpctest.Run(t, func(t *testing.T) vpctest.Harness {
			w := newWorld(t, few)
			w.config.NextHops = gcp.Address
			return harness(w, t, atOnce, false)
		})
	})
}

func few(o *emulated.Options) { o.Routes = 30 }

func harness(w *world, t *testing.T, answers map[vpc.Class]*cloud.Answer, lags bool) vpctest.Harness {
	h := vpctest.Harness{
		Tables: []string{theNetwork},
		Owner:  theCluster,
		Ranges: []netip.Prefix{clusterCIDR, clusterCIDR6},
		Max:    30,
		FailNext: func(_ testing.TB, class vpc.Class) bool {
			w.Inject(cloud.Fault{Writes: true, Times: 1, Answer: answers[class]})
			return answers[class] != nil
		},
		LoseAnswer: func(testing.TB) { w.Inject(cloud.Fault{Writes: true, Times: 1, Lost: true}) },
		Put:        func(t testing.TB, r vpc.Route) { w.AddRoute(theProject, foreign(r)) },
		PutOdd:     func(testing.TB) { w.addOddRoutes() },
		Terminate: func(_ testing.TB, n vpc.Node) {
			for i := range 10 {
				if node(i).Name == n.Name {
					w.RemoveMachines(machine(i).Path())
				}
			}
		},
	}
	for i := range 10 {
		w.startMachines(i)
		h.Nodes = append(h.Nodes, node(i))
	}
	h.Settle = func() {
		for !w.Idle() {
			time.Sleep(time.Millisecond)
		}
	}
	if lags {
		clock := cloud.NewStepClock(time.Now())
		w.Clock = clock
		w.startMachines(0)
		clock.Step(3 * time.Minute)
		h.Settle = func() { clock.Step(time.Minute) }
	}
	h.Table = w.table(t)
	return h
}

// foreign is a stranger's route that does what r does.
func foreign(r vpc.Route) emulated.Route {
	made := emulated.Route{
		Name: "theirs-" + nameFor(r.Destination), Network: thePath, DestRange: r.Destination.String(), Description: "made by hand",
	}
	if a, err := netip.ParseAddr(string(r.NextHop)); err == nil {
		made.NextHopIP = a.String()
	} else {
		made.NextHopInstance = string(r.NextHop)
	}
	return made
}

func nameFor(d netip.Prefix) string {
	text := make([]byte, 0, 40)
	for _, c := range []byte(d.String()) {
		if c < '0' {
			c = '-'
		}
		if c == ':' {
			c = 'x'
		}
		text = append(text, c)
	}
	return string(text)
}

// addOddRoutes puts in what we would never make.
func (w *world) addOddRoutes() {
	for _, r := range []emulated.Route{
		{Name: "default-route-1", DestRange: "0.0.0.0/0", NextHopGateway: "projects/" + theProject + "/global/gateways/default-internet-gateway"},
		{Name: "default-route-2", DestRange: "::/0", NextHopGateway: "projects/" + theProject + "/global/gateways/default-internet-gateway"},
		{Name: "peering-route-1", DestRange: "192.168.1.0/24", NextHopPeering: "to-shared"},
		{Name: "vpn-1", DestRange: "192.168.2.0/24", NextHopVPNTunnel: "projects/" + theProject + "/regions/europe-west1/vpnTunnels/t-1"},
		{Name: "lb-1", DestRange: "192.168.3.0/24", NextHopIlb: "10.0.0.99"},
		{Name: "tagged", DestRange: "192.168.4.0/24", NextHopInstance: machine(1).Path(), Tags: []string{"batch"}},
		{Name: "host-bits", DestRange: "192.168.5.7/24", NextHopIP: "10.0.0.11"},
		{Name: "nothing"},
		{Name: "elsewhere", DestRange: "10.244.1.0/24", NextHopIP: "10.0.0.11", Network: "projects/" + theProject + "/global/networks/prod-2"},
	} {
		if r.Network == "" {
			r.Network = thePath
		}
		w.AddRoute(theProject, r)
	}
}
