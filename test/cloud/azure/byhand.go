package azure

import (
	"flag"
	"fmt"
	"net/netip"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// What stands in the subscription of an emulator that is run by hand.
const (
	handGroup   = "hand"
	handTable   = "hand-routes"
	handNetwork = "hand-network"
)

// ByHand adds the emulator's flags and returns what makes it: one virtual network
// with one subnet, its route table and some machines.
func ByHand(f *flag.FlagSet) func() (cloud.Stand, error) {
	o := Defaults()
	o.OperationTime = time.Second
	var ranges string
	var machines int
	var rates, forwarding bool
	f.StringVar(&ranges, "subnet", "172.31.0.0/24", "range of the virtual network and of its one subnet")
	f.IntVar(&machines, "machines", 20, "machines in the subnet, at its addresses from .11 on")
	f.IntVar(&o.RoutesPerTable, "routes-per-table", o.RoutesPerTable, "routes that a table takes")
	f.BoolVar(&rates, "rates", true, "limit the calls to the documented rates")
	f.BoolVar(&forwarding, "forwarding", true, "have the machines' interfaces forward")
	f.DurationVar(&o.OperationTime, "operation-time", o.OperationTime, "how long a write takes")
	return func() (cloud.Stand, error) {
		p, err := netip.ParsePrefix(ranges)
		if err != nil {
			return cloud.Stand{}, fmt.Errorf("--subnet: %w", err)
		}
		e := New(o)
		if rates {
			e.DocumentedRates()
		}
		e.AddTable(handGroup, handTable, nil)
		e.AddNetwork(handGroup, handNetwork, p)
		e.AddSubnet(handGroup, handNetwork, "nodes", e.ID(handGroup, "Microsoft.Network/routeTables", handTable), p)
		a := p.Addr()
		for i := range 10 + machines {
			if a = a.Next(); i >= 10 {
				name := fmt.Sprintf("machine-%d", i-9)
				e.AddMachine(handGroup, name, e.SubnetID(handGroup, handNetwork, "nodes"), a)
				e.SetForwarding(name+"-nic", forwarding)
			}
		}
		return cloud.Stand{Frame: e.Frame, Handler: e, Env: e.env, Flags: e.flags}, nil
	}
}

func (e *Emulator) env(url, _ string) []string {
	return []string{"IDENTITY_ENDPOINT=" + url + "/msi/token", "IDENTITY_HEADER=" + e.options.IdentityHeader}
}

func (e *Emulator) flags(url string) []string {
	return []string{
		"--vpc", "azure", "--cluster-id", "demo", "--azure-subscription", e.options.Subscription, "--azure-resource-group", handGroup,
		"--azure-table", handTable, "--azure-credentials", "managed-identity", "--azure-endpoint", url,
	}
}
