package tencent

import (
	"flag"
	"fmt"
	"net/netip"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// What stands in the VPC of an emulator that is run by hand.
const (
	handVPC    = "vpc-hand0001"
	handTable  = "rtb-hand0001"
	handSubnet = "subnet-hand01"
)

// ByHand adds the emulator's flags and returns what makes it: one VPC with one
// subnet, one VPC route table and some machines.
func ByHand(f *flag.FlagSet) func() (cloud.Stand, error) {
	o := Defaults()
	var subnet string
	var machines int
	var rates bool
	f.StringVar(&subnet, "subnet", "172.31.0.0/24", "range of the VPC and of its one subnet")
	f.IntVar(&machines, "machines", 20, "machines in the subnet, at its addresses from .11 on")
	f.IntVar(&o.RoutesPerTable, "routes-per-table", o.RoutesPerTable, "routes that a VPC route table takes")
	f.BoolVar(&rates, "rates", true, "limit the calls to the documented rates")
	f.BoolVar(&o.TwinCodes, "twin-codes", false, "answer the second family of each error code")
	f.BoolVar(&o.ECMP, "ecmp", false, "take a second machine for a range")
	f.BoolVar(&o.PartialBatches, "partial-batches", false, "keep the entries in front of a bad one")
	f.DurationVar(&o.SeeAfter, "see-after", 0, "how long reads lag behind writes")
	return func() (cloud.Stand, error) {
		p, err := netip.ParsePrefix(subnet)
		if err != nil {
			return cloud.Stand{}, fmt.Errorf("--subnet: %w", err)
		}
		e := New(o)
		if rates {
			e.DocumentedRates()
		}
		e.AddVPC(handVPC, p)
		e.AddTable(handVPC, handTable, nil)
		e.AddSubnet(handVPC, handSubnet, p, handTable)
		a := p.Addr()
		for i := range 10 + machines {
			if a = a.Next(); i >= 10 {
				e.AddMachines(handVPC, a)
			}
		}
		return cloud.Stand{
			Frame: e.Frame, Handler: e, Env: e.env, Flags: e.flags,
			Note: "or --tencent-mode vpc, without --tencent-create-table, for the table " + handTable,
		}, nil
	}
}

func (e *Emulator) env(string, string) []string {
	return []string{"TENCENTCLOUD_SECRET_ID=" + e.options.SecretID, "TENCENTCLOUD_SECRET_KEY=" + e.options.SecretKey}
}

func (e *Emulator) flags(url string) []string {
	return []string{
		"--vpc", "tencent", "--cluster-id", "demo", "--tencent-mode", "global-route", "--tencent-create-table",
		"--tencent-region", e.options.Region, "--tencent-vpc-id", handVPC, "--tencent-endpoint", url,
	}
}
