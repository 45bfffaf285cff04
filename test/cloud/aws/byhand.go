package aws

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
	handSubnet = "subnet-hand0001"
)

// ByHand adds the emulator's flags and returns what makes it: one VPC with its
// main table, one subnet and some instances.
func ByHand(f *flag.FlagSet) func() (cloud.Stand, error) {
	o := Defaults()
	var subnet string
	var instances int
	var rates, check bool
	f.StringVar(&subnet, "subnet", "172.31.0.0/24", "range of the VPC and of its one subnet")
	f.IntVar(&instances, "instances", 20, "instances in the subnet, at its addresses from .11 on")
	f.IntVar(&o.RoutesPerTable, "routes-per-table", o.RoutesPerTable, "routes of each family that a table takes")
	f.BoolVar(&rates, "rates", true, "limit the calls to the documented rates")
	f.BoolVar(&check, "source-dest-check", true, "the instances' interfaces have their check on")
	f.BoolVar(&o.SameRouteSucceeds, "same-route-succeeds", false, "take CreateRoute of exactly what is there")
	f.BoolVar(&o.BlackholeForgets, "blackhole-forgets", false, "list a blackhole without its interface")
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
		e.AddVPC(handVPC, handTable, p)
		e.AddSubnet(handVPC, handSubnet, p, "")
		a := p.Addr()
		for i := range 10 + instances {
			if a = a.Next(); i >= 10 {
				e.AddInterfaces(Interface{
					ID: fmt.Sprintf("eni-%017x", i+1), Subnet: handSubnet, Instance: fmt.Sprintf("i-%017x", i+1), Addresses: []netip.Addr{a}, Check: check,
				})
			}
		}
		return cloud.Stand{Frame: e.Frame, Handler: e, Env: e.env, Flags: e.flags, Note: "for the table " + handTable}, nil
	}
}

func (e *Emulator) env(string, string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + e.options.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + e.options.SecretAccessKey}
}

func (e *Emulator) flags(url string) []string {
	return []string{
		"--vpc", "aws", "--cluster-id", "demo", "--aws-source-dest-check", "switch-off",
		"--aws-region", e.options.Region, "--aws-vpc-id", handVPC, "--aws-endpoint", url,
	}
}
