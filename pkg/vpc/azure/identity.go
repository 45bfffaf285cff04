package azure

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// Names in Azure keep the case in which they were written and are compared
// without it.

// A tableRef names a route table.
type tableRef struct {
	group, name string
	// id is how people and the ledger know it: NAME, or GROUP/NAME outside the
	// configured group.
	id string
}

func (r tableRef) String() string { return "route table " + r.id }

// parseTable reads a table's name as the configuration takes it.
func (c Config) parseTable(text string) (tableRef, error) {
	group, name := c.ResourceGroup, text
	switch {
	case strings.HasPrefix(text, "/"):
		id, err := arm.ParseResourceID(text)
		if err != nil || !strings.EqualFold(id.ResourceType.String(), "Microsoft.Network/routeTables") {
			return tableRef{}, fmt.Errorf(`table %q: want a name, GROUP/NAME, or the id of a route table`, text)
		}
		if !strings.EqualFold(id.SubscriptionID, c.SubscriptionID) {
			return tableRef{}, fmt.Errorf("table %q: not in subscription %s: a table serves subnets of its own subscription", text, c.SubscriptionID)
		}
		group, name = id.ResourceGroupName, id.Name
	case strings.Contains(text, "/"):
		group, name, _ = strings.Cut(text, "/")
	}
	if !groupPattern.MatchString(group) || !tablePattern.MatchString(name) {
		return tableRef{}, fmt.Errorf(`table %q: want a name such as "prod-routes", GROUP/NAME, or the id of a route table`, text)
	}
	return c.tableRef(group, name), nil
}

func (c Config) tableRef(group, name string) tableRef {
	ref := tableRef{group: group, name: name, id: name}
	if !strings.EqualFold(group, c.ResourceGroup) {
		ref.id = group + "/" + name
	}
	return ref
}

const providerScheme = "azure://"

// A machine is where a node's network interfaces are looked for.
type machine struct {
	id       string // resource id, "" when the node does not say
	group    string
	scaleSet string // of uniform orchestration, else ""
}

// machineOf reads a node's provider ID: a virtual machine (those of flexible
// scale sets included) or an instance of a uniform scale set, in the forms that
// cloud-provider-azure writes. A node without one is looked for in the tables'
// group by its address.
func (c Config) machineOf(node vpc.Node) (machine, error) {
	if node.ProviderID == "" {
		return machine{group: c.ResourceGroup}, nil
	}
	bad := func(reason string) (machine, error) {
		return machine{}, vpc.Errorf(vpc.Invalid, "node %s: provider ID %q %s: want one such as %q, or exclude the node", node.Name, node.ProviderID, reason,
			"azure:///subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME")
	}
	path, ok := strings.CutPrefix(node.ProviderID, providerScheme)
	if !ok {
		return bad("is not a machine of Azure")
	}
	id, err := arm.ParseResourceID(path)
	if err != nil || id.ResourceGroupName == "" || id.Name == "" {
		return bad("is not a machine of Azure")
	}
	if !strings.EqualFold(id.SubscriptionID, c.SubscriptionID) {
		return bad("is in another subscription than the route tables")
	}
	m := machine{id: path, group: id.ResourceGroupName}
	switch strings.ToLower(id.ResourceType.String()) {
	case "microsoft.compute/virtualmachines":
		return m, nil
	case "microsoft.compute/virtualmachinescalesets/virtualmachines":
		m.scaleSet = id.Parent.Name
		return m, nil
	default:
		return bad("is not a machine of Azure")
	}
}

// addressesOf returns the internal addresses of a family by which a node may be
// named.
func addressesOf(node vpc.Node, family vpc.Family) (addresses []netip.Addr, err error) {
	for _, a := range node.Addresses {
		if a = a.Unmap(); a.Is4() == (family == vpc.IPv4) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 {
		return nil, vpc.Errorf(vpc.Invalid, "node %s: has no internal %s address (found %v)", node.Name, family, node.Addresses)
	}
	return addresses, nil
}

// checkChange says why a change can never be made, or returns nil.
func checkChange(c vpc.Change) error {
	r := c.Route
	if !r.Destination.IsValid() || r.Destination.Addr().Is4In6() || r.Destination != r.Destination.Masked() {
		return refuse(c, vpc.Invalid, "the destination is not a range such as 10.244.1.0/24")
	}
	if c.Op == vpc.Delete {
		return nil
	}
	if hop, err := netip.ParseAddr(string(r.NextHop)); err != nil || hop.Is4() != r.Destination.Addr().Is4() {
		return refuse(c, vpc.Invalid, "the next hop is not a private address of the destination's family")
	}
	return nil
}

func refuse(c vpc.Change, class vpc.Class, format string, args ...any) error {
	return &vpc.Error{Class: class, Op: describe(c), Err: fmt.Errorf(format, args...)}
}

// describe says in words what a change does.
func describe(c vpc.Change) string {
	if c.Op == vpc.Delete {
		return fmt.Sprintf("delete %s by %s from %s", c.Route.Destination, c.Route.NextHop, c.Route.Table)
	}
	return fmt.Sprintf("%s %s by %s in %s", c.Op, c.Route.Destination, c.Route.NextHop, c.Route.Table)
}
