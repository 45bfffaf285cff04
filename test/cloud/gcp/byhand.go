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
		return cloud.Stand{
			Frame: e.Frame, Handler: e, Env: env, Flags: flags, ProviderID: providerID,
			Note: "provider IDs are " + providerID(1) + " and so on",
		}, nil
	}
}

func providerID(number int) string {
	return fmt.Sprintf("gce://%s/%s/node-%d", handProject, handZone, number)
}

// env writes the key file that it names.
func env(url, dir string) []string {
	file := filepath.Join(dir, "vpcroute-emulated-gcp.json")
	if err := os.WriteFile(file, Key(url), 0o600); err != nil {
		file = err.Error() // the product names it as the file that it cannot read
	}
	return []string{"GOOGLE_APPLICATION_CREDENTIALS=" + file}
}

func flags(url string) []string {
	return []string{"--vpc", "gcp", "--cluster-id", "demo", "--gcp-project", handProject, "--gcp-network", handNetwork, "--gcp-endpoint", url}
}
