package aws

import (
	"maps"
	"net/netip"
	"slices"
)

type address struct {
	Address string `xml:"privateIpAddress,omitempty"`
	IPv6    string `xml:"ipv6Address,omitempty"`
}

type attachment struct {
	Instance string `xml:"instanceId,omitempty"`
	Device   int    `xml:"deviceIndex"`
	Status   string `xml:"status"`
}

type describedInterface struct {
	ID         string      `xml:"networkInterfaceId"`
	VPC        string      `xml:"vpcId"`
	Subnet     string      `xml:"subnetId"`
	Status     string      `xml:"status"`
	Check      bool        `xml:"sourceDestCheck"`
	IPv4       []address   `xml:"privateIpAddressesSet>item"`
	IPv6       []address   `xml:"ipv6AddressesSet>item"`
	Attachment *attachment `xml:"attachment"`
}

type describedInterfaces struct {
	Interfaces []describedInterface `xml:"networkInterfaceSet>item"`
	Next       string               `xml:"nextToken,omitempty"`
}

func (e *Emulator) describeNetworkInterfaces(q parameters) (any, *problem) {
	seen, ids, filters := e.seen(), q.list("NetworkInterfaceId"), q.filters()
	var found []describedInterface
	for _, id := range slices.Sorted(maps.Keys(seen.interfaces)) {
		d := e.describeInterface(seen.interfaces[id])
		ok, p := selects(filters, d.values)
		if p != nil {
			return nil, p
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, id)) {
			found = append(found, d)
		}
	}
	part, next, p := page(q, found, largestPage)
	return describedInterfaces{part, next}, p
}

func (e *Emulator) describeInterface(i Interface) describedInterface {
	d := describedInterface{ID: i.ID, Subnet: i.Subnet, VPC: e.networkOf(i.Subnet), Status: "available", Check: i.Check}
	if i.Instance != "" {
		d.Status, d.Attachment = "in-use", &attachment{i.Instance, i.Device, "attached"}
	}
	for _, a := range i.Addresses {
		if a.Is4() {
			d.IPv4 = append(d.IPv4, address{Address: a.String()})
		} else {
			d.IPv6 = append(d.IPv6, address{IPv6: a.String()})
		}
	}
	return d
}

func (d describedInterface) values(name string) (values []string, known bool) {
	switch name {
	case "vpc-id":
		return []string{d.VPC}, true
	case "subnet-id":
		return []string{d.Subnet}, true
	case "attachment.status":
		if d.Attachment == nil {
			return nil, true
		}
		return []string{d.Attachment.Status}, true
	case "attachment.instance-id":
		if d.Attachment == nil {
			return nil, true
		}
		return []string{d.Attachment.Instance}, true
	}
	return nil, false
}

// networkOf is the VPC of a subnet.
func (e *Emulator) networkOf(subnet string) string {
	for id, n := range e.networks {
		if _, there := n.subnets[subnet]; there {
			return id
		}
	}
	return ""
}

func (e *Emulator) modifyNetworkInterface(q parameters) (any, *problem) {
	id := q.get("NetworkInterfaceId")
	next := e.state.clone()
	i, there := next.interfaces[id]
	if !there {
		return nil, problemf("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
	}
	switch q.get("SourceDestCheck.Value") {
	case "true":
		i.Check = true
	case "false":
		i.Check = false
	default:
		return nil, problemf("MissingParameter", "The request must contain the parameter SourceDestCheck")
	}
	next.interfaces[id] = i
	e.commit(next)
	return done{true}, nil
}

type describedSubnet struct {
	ID   string `xml:"subnetId"`
	VPC  string `xml:"vpcId"`
	CIDR string `xml:"cidrBlock"`
}

type describedSubnets struct {
	Subnets []describedSubnet `xml:"subnetSet>item"`
	Next    string            `xml:"nextToken,omitempty"`
}

func (e *Emulator) describeSubnets(q parameters) (any, *problem) {
	var found []describedSubnet
	for _, vpc := range slices.Sorted(maps.Keys(e.networks)) {
		for _, id := range slices.Sorted(maps.Keys(e.networks[vpc].subnets)) {
			d := describedSubnet{id, vpc, e.networks[vpc].subnets[id].String()}
			ok, p := selects(q.filters(), func(name string) ([]string, bool) { return []string{d.VPC}, name == "vpc-id" })
			if p != nil {
				return nil, p
			}
			if ok {
				found = append(found, d)
			}
		}
	}
	part, next, p := page(q, found, largestPage)
	return describedSubnets{part, next}, p
}

type block struct {
	CIDR  string `xml:"cidrBlock,omitempty"`
	IPv6  string `xml:"ipv6CidrBlock,omitempty"`
	State string `xml:"cidrBlockState>state,omitempty"`
}

type describedVPC struct {
	ID     string  `xml:"vpcId"`
	CIDR   string  `xml:"cidrBlock"`
	Blocks []block `xml:"cidrBlockAssociationSet>item"`
	IPv6   []block `xml:"ipv6CidrBlockAssociationSet>item"`
}

type describedVPCs struct {
	VPCs []describedVPC `xml:"vpcSet>item"`
}

func (e *Emulator) describeVpcs(q parameters) (any, *problem) {
	var answer describedVPCs
	for _, id := range q.list("VpcId") {
		n := e.networks[id]
		if n == nil {
			return nil, problemf("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", id)
		}
		d := describedVPC{ID: id, CIDR: n.ranges[0].String()}
		for _, p := range n.ranges {
			d.add(p)
		}
		answer.VPCs = append(answer.VPCs, d)
	}
	return answer, nil
}

func (d *describedVPC) add(p netip.Prefix) {
	if p.Addr().Is4() {
		d.Blocks = append(d.Blocks, block{CIDR: p.String(), State: "associated"})
	} else {
		d.IPv6 = append(d.IPv6, block{IPv6: p.String()})
	}
}
