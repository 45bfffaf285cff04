package azure_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// documentedRoles reads the role definitions of the page on Azure, by name.
func documentedRoles(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/clouds/azure.md")
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string][]string{}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1) {
		var role struct {
			Name    string
			Actions []string
		}
		if err := json.Unmarshal(block[1], &role); err != nil {
			t.Fatal(err)
		}
		roles[role.Name] = role.Actions
	}
	return roles
}

// The documented roles are exact: with one everything works and the check finds
// nothing; without any one of its actions something does not.
func TestDocumentedRolesAreExact(t *testing.T) {
	roles := documentedRoles(t)
	for name, forwarding := range map[string]bool{"vpcroute": false, "vpcroute with forwarding": true} {
		t.Run(name, func(t *testing.T) {
			actions := roles[name]
			if problem := useEverything(t, forwarding, actions); problem != "" {
				t.Errorf("with the documented role: %s", problem)
			}
			for i, action := range actions {
				if useEverything(t, forwarding, slices.Delete(slices.Clone(actions), i, i+1)) == "" {
					t.Errorf("%s is in the role and not needed", action)
				}
			}
		})
	}
}

// useEverything does all that the product does, with these permissions, and
// returns what failed.
func useEverything(t *testing.T, forwarding bool, actions []string) string {
	w := newWorld(func(o *emulated.Options) { o.OperationTime = time.Millisecond })
	w.startMachines(1)
	instance := vpc.Node{Name: "instance", ProviderID: w.AddInstance(theGroup, "pool", 0, w.near(), address(2)), Addresses: addrs("10.0.0.12")}
	w.AddInterface(emulated.Interface{
		Group: theGroup, Name: "still", Machine: w.ID(theGroup, "Microsoft.Compute/virtualMachines", vmName(3)),
		Subnet: w.near(), Addresses: addrs("10.0.0.13"), Forwarding: !forwarding, SecurityGroup: true,
	})
	w.config.SetForwarding = forwarding
	w.Only(actions...)
	table, err := azure.New(t.Context(), w.config)
	if err != nil {
		return err.Error()
	}
	for _, n := range []vpc.Node{w.node(1), instance, w.node(3)} {
		if _, err := table.NextHop(t.Context(), n, vpc.IPv4); err != nil {
			return err.Error()
		}
	}
	for _, nodes := range []map[netip.Prefix]vpc.Node{{podCIDR(1): w.node(1)}, {podCIDR(1): instance}, {}} {
		if _, err := resync(t.Context(), table, nodes); err != nil {
			return err.Error()
		}
	}
	for _, f := range table.Preflight(t.Context()) {
		if f.Severity == vpc.SeverityError {
			return f.Object + ": " + f.Message
		}
	}
	return ""
}
