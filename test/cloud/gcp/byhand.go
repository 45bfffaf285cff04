package gcp

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// What stands in the project of an emulator that is run by hand.
const (
	handProject = "shop-prod-1"
	handNetwork = "prod"
	handZone    = "europe-west1-b"
)

// ByHand adds the emulator's flags and returns what makes it: a project with one
// network, one subnet and some machines.
func ByHand(f *flag.FlagSet) func() (cloud.Stand, error) {
	o := Defaults()
	var subnet string
	var machines int
	var rates bool
	f.StringVar(&subnet, "subnet", "172.31.0.0/24", "range of the one subnet")
	f.IntVar(&machines, "machines", 20, "machines in the subnet: node-1 at its address .11, and so on")
	f.IntVar(&o.Routes, "routes", o.Routes, "quota of static routes")
	f.BoolVar(&rates, "rates", true, "limit the calls to the documented rates")
	f.DurationVar(&o.OperationTime, "operation-time", 0, "how long an operation takes")
	f.DurationVar(&o.SeeAfter, "see-after", 0, "how long lists lag behind writes")
	return func() (cloud.Stand, error) {
		p, err := netip.ParsePrefix(subnet)
		if err != nil {
			return cloud.Stand{}, fmt.Errorf("--subnet: %w", err)
		}
		e := New(o)
		if rates {
			e.DocumentedRates()
		}
		e.AddNetwork(handProject, handNetwork, p)
		a := p.Addr()
		for i := range 10 + machines {
			if a = a.Next(); i >= 10 {
				e.AddMachines(Machine{
					Project: handProject, Zone: handZone, Name: fmt.Sprintf("node-%d", i-9),
					Network: e.networks[handProject+"/"+handNetwork].path(), Addresses: []netip.Addr{a}, CanIPForward: true,
				})
			}
		}
		return cloud.Stand{Frame: e.Frame, Handler: e, Usage: usage}, nil
	}
}

// usage writes the key file that the lines name.
func usage(url string) string {
	file := filepath.Join(os.TempDir(), "vpcroute-emulated-gcp.json")
	if err := os.WriteFile(file, Key(url), 0o600); err != nil {
		return "# the key file: " + err.Error()
	}
	return fmt.Sprintf(`export GOOGLE_APPLICATION_CREDENTIALS=%s
# route-controller --nodes nodes.yaml --cluster-id demo --cluster-cidr 10.244.0.0/16 \
#   --vpc gcp --gcp-project %s --gcp-network %s --gcp-endpoint %s
# for the table %s; provider IDs are gce://%s/%s/node-1 and so on`,
		file, handProject, handNetwork, url, handNetwork, handProject, handZone)
}
