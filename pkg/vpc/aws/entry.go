package aws

import (
	"cmp"
	"net/netip"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// routeOf reads an entry of a route table. Its next hop is whatever it names,
// gateways and peerings included: a blackhole without a next hop would pass for
// one of a machine that is gone.
func routeOf(table string, e types.Route) vpc.Route {
	r := vpc.Route{Table: table, Blackhole: e.State == types.RouteStateBlackhole}
	r.Destination, r.Text = parseDestination(cmp.Or(
		value(e.DestinationCidrBlock), value(e.DestinationIpv6CidrBlock), value(e.DestinationPrefixListId)))
	r.NextHop = vpc.NextHop(cmp.Or(
		value(e.NetworkInterfaceId), value(e.GatewayId), value(e.NatGatewayId), value(e.TransitGatewayId),
		value(e.VpcPeeringConnectionId), value(e.EgressOnlyInternetGatewayId), value(e.LocalGatewayId),
		value(e.CarrierGatewayId), value(e.CoreNetworkArn), value(e.OdbNetworkArn), value(e.IpAddress)))
	return r
}

// parseDestination reads a range, or returns its text when it is not one.
func parseDestination(s string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p != p.Masked() || p.Addr().Is4In6() {
		return netip.Prefix{}, cmp.Or(s, "(no destination)")
	}
	return p, ""
}

// byHand is true for an entry that calls can change: neither local nor
// propagated.
func byHand(e types.Route) bool { return e.Origin == types.RouteOriginCreateRoute }

// counts is true for an entry that counts against the quota of a family. Entries
// of prefix lists count too, by a number that is not told here: as one.
func counts(e types.Route, family vpc.Family) bool {
	return e.Origin != types.RouteOriginEnableVgwRoutePropagation && e.Origin != types.RouteOriginAdvertisement &&
		(e.DestinationIpv6CidrBlock != nil) == (family == vpc.IPv6)
}

// usedBy is how many entries a table has that count against the quota of a
// family.
func usedBy(t types.RouteTable, family vpc.Family) (n int) {
	for _, e := range t.Routes {
		if counts(e, family) {
			n++
		}
	}
	return n
}
