package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vpcroute/vpcroute/pkg/routes/podcidr"
)

// The sizes of podCIDRs when no flag says otherwise: those of
// kube-controller-manager.
const (
	defaultMaskIPv4 = 24
	defaultMaskIPv6 = 64
)

// allocation reads the flags about podCIDRs: the ranges that they are cut from,
// and none when the controller does not allocate them.
func (o *options) allocation(ranges []netip.Prefix, inCluster bool) ([]podcidr.Range, error) {
	if !o.allocate {
		return nil, nil
	}
	if !inCluster {
		return nil, errors.New("--allocate-node-cidrs is given with --nodes, but podCIDRs are written to the Nodes of a cluster: leave one of them out")
	}
	var cut []podcidr.Range
	for _, r := range ranges {
		bits := o.maskIPv4
		if r.Addr().Is6() {
			bits = o.maskIPv6
		}
		cut = append(cut, podcidr.Range{CIDR: r, Bits: bits})
	}
	if _, err := podcidr.NewPool(cut); err != nil {
		return nil, fmt.Errorf("--allocate-node-cidrs, --node-cidr-mask-size-ipv4, --node-cidr-mask-size-ipv6: %w", err)
	}
	return cut, nil
}
