package aws

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const providerScheme = "aws://"

var instancePattern = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// instanceOf reads the instance from a node's provider ID: "aws:///ZONE/i-…", the
// same with any number of slashes, or the bare id; "" when the node has none.
func instanceOf(node vpc.Node) (string, error) {
	if node.ProviderID == "" {
		return "", nil
	}
	id := node.ProviderID[strings.LastIndex(node.ProviderID, "/")+1:]
	bare := id == node.ProviderID
	switch {
	case instancePattern.MatchString(id) && (bare || strings.HasPrefix(node.ProviderID, providerScheme)):
		return id, nil
	case strings.HasPrefix(id, "fargate-"):
		return "", vpc.Errorf(vpc.Invalid, "node %s: provider ID %q is a Fargate node, to which no route can lead: exclude the node", node.Name, node.ProviderID)
	default:
		return "", vpc.Errorf(vpc.Invalid, "node %s: provider ID %q is not an EC2 instance: want one such as %q, or exclude the node", node.Name, node.ProviderID, "aws:///eu-central-1a/i-0a1b2c3d4e5f60718")
	}
}

// A port is a network interface of an instance.
type port struct {
	id, instance, subnet string
	device               int32
	addresses            []netip.Addr
	check                bool // the source and destination check is on
}

// A fleet is the network interfaces of all instances of the VPC.
type fleet struct {
	byID       map[vpc.NextHop]port
	byInstance map[string][]port
	byAddress  map[netip.Addr]port
}

func newFleet(found []types.NetworkInterface) fleet {
	f := fleet{map[vpc.NextHop]port{}, map[string][]port{}, map[netip.Addr]port{}}
	for _, i := range found {
		if i.Attachment == nil || value(i.Attachment.InstanceId) == "" {
			continue // of a load balancer, a NAT gateway …
		}
		p := port{
			id: value(i.NetworkInterfaceId), instance: value(i.Attachment.InstanceId), subnet: value(i.SubnetId),
			device: value(i.Attachment.DeviceIndex), addresses: addressesOf(i), check: value(i.SourceDestCheck),
		}
		f.byID[vpc.NextHop(p.id)] = p
		f.byInstance[p.instance] = append(f.byInstance[p.instance], p)
		for _, a := range p.addresses {
			f.byAddress[a] = p
		}
	}
	return f
}

func addressesOf(i types.NetworkInterface) (all []netip.Addr) {
	texts := []string{value(i.PrivateIpAddress)}
	for _, a := range i.PrivateIpAddresses {
		texts = append(texts, value(a.PrivateIpAddress))
	}
	for _, a := range i.Ipv6Addresses {
		texts = append(texts, value(a.Ipv6Address))
	}
	for _, s := range texts {
		if a, err := netip.ParseAddr(s); err == nil && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// find returns the interface to which routes for a node lead: of the instance in
// its provider ID, else of any, the one that holds an internal address of the
// node. An instance of a node without addresses is reached by its first interface.
func (f fleet) find(node vpc.Node, instance string) (port, error) {
	all, known := f.byInstance[instance]
	if instance != "" && !known {
		return port{}, vpc.Errorf(vpc.NotFound, "no instance %s with a network interface in this VPC: exclude the node, or correct the VPC id", instance)
	}
	for _, a := range node.Addresses {
		p, found := f.byAddress[a.Unmap()]
		if found && (instance == "" || p.instance == instance) {
			return p, nil
		}
	}
	switch {
	case instance != "" && len(node.Addresses) == 0:
		return slices.MinFunc(all, func(a, b port) int { return int(a.device - b.device) }), nil
	case instance != "":
		var has []netip.Addr
		for _, p := range all {
			has = append(has, p.addresses...)
		}
		return port{}, vpc.Errorf(vpc.NotFound, "instance %s has none of the internal addresses %v, but %v", instance, node.Addresses, has)
	case len(node.Addresses) == 0:
		return port{}, vpc.Errorf(vpc.Invalid, "it has neither a provider ID nor an internal address")
	default:
		return port{}, vpc.Errorf(vpc.NotFound, "no instance in this VPC has any of the internal addresses %v: exclude the node, or correct the VPC id", node.Addresses)
	}
}

// dropped says why packets to a next hop are dropped.
func dropped(hop vpc.NextHop) string { return fmt.Sprintf("source/destination check of %s is on", hop) }
