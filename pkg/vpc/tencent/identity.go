package tencent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// Both kinds of table name a machine by its private IPv4 address.

const providerScheme = "qcloud://"

// addressesOf returns the private IPv4 addresses by which a node may be named.
// Its provider ID only has to be Tencent Cloud's, if it has one: the zone in it
// comes as a name or as a number, and the machine's id in several forms.
func addressesOf(node vpc.Node, family vpc.Family) ([]netip.Addr, error) {
	if family != vpc.IPv4 {
		return nil, vpc.Errorf(vpc.Invalid, "node %s: Tencent Cloud's route tables lead to a node by IPv4 alone, and an %s podCIDR was asked for: run the cluster with IPv4 podCIDRs", node.Name, family)
	}
	if id := node.ProviderID; id != "" {
		rest, ok := strings.CutPrefix(id, providerScheme)
		if machine := rest[strings.LastIndex(rest, "/")+1:]; !ok || machine == "" {
			return nil, vpc.Errorf(vpc.Invalid, "node %s: provider ID %q is not a machine of Tencent Cloud: want one such as %q, or exclude the node", node.Name, id, "qcloud:///ap-guangzhou-3/ins-0a1b2c3d")
		}
	}
	var addresses []netip.Addr
	for _, a := range node.Addresses {
		if a = a.Unmap(); a.Is4() {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 {
		return nil, vpc.Errorf(vpc.Invalid, "node %s: has no internal IPv4 address (found %v)", node.Name, node.Addresses)
	}
	return addresses, nil
}

// checkChange says why a change can never be made, or returns nil.
func checkChange(c vpc.Change) error {
	r := c.Route
	if !r.Destination.IsValid() || !r.Destination.Addr().Is4() || r.Destination != r.Destination.Masked() {
		return invalidChange(c, "the destination is not an IPv4 range")
	}
	if c.Op == vpc.Delete {
		return nil
	}
	if hop, err := netip.ParseAddr(string(r.NextHop)); err != nil || !hop.Is4() {
		return invalidChange(c, "the next hop is not a private IPv4 address")
	}
	return nil
}

func invalidChange(c vpc.Change, reason string) error {
	return &vpc.Error{Class: vpc.Invalid, Op: describe(c), Err: fmt.Errorf("%s", reason)}
}

// describe says in words what a change does.
func describe(c vpc.Change) string {
	if c.Op == vpc.Delete {
		return fmt.Sprintf("delete %s by %s from %s", c.Route.Destination, c.Route.NextHop, c.Route.Table)
	}
	return fmt.Sprintf("%s %s by %s in %s", c.Op, c.Route.Destination, c.Route.NextHop, c.Route.Table)
}
