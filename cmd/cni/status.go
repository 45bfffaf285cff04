package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/ipam"
)

// status says why an ADD would fail, or fail to give a pod a working network.
func status(c *call) (*types100.Result, error) {
	if c.confErr != nil {
		return nil, unavailable(c.confErr, "correct it in the conflist")
	}
	pool, err := ipam.New(c.conf.PodCIDRs, c.conf.Exclude)
	if err != nil {
		return nil, unavailable(err, "correct podCIDRs and exclude in the conflist")
	}
	facts := bridge.ReadFacts()
	if err := kernelStatus(c.conf.PodCIDRs, facts); err != nil {
		return nil, err
	}
	if err := ledgerStatus(c, pool); err != nil {
		return nil, err
	}
	if err := stateStatus(c, pool); err != nil {
		return nil, err
	}
	return nil, forwardingStatus(c.conf.PodCIDRs, facts)
}

func unavailable(cause error, next string) error {
	return failure(types.ErrPluginNotAvailable, cause, next)
}

func limited(cause, next string) error {
	return failure(types.ErrLimitedConnectivity, errors.New(cause), next)
}

func kernelStatus(podCIDRs []netip.Prefix, f bridge.Facts) error {
	if f.OldKernel {
		return unavailable(fmt.Errorf("kernel %s is too old", f.Kernel), "Linux 5.5 or newer is needed")
	}
	if hasFamily(podCIDRs, false) && !f.IPv6 {
		return unavailable(errors.New("podCIDRs has an IPv6 range, but IPv6 is off in the kernel"),
			"boot without ipv6.disable=1 and set net.ipv6.conf.all.disable_ipv6=0, or take the range out")
	}
	return nil
}

func hasFamily(podCIDRs []netip.Prefix, is4 bool) bool {
	return slices.ContainsFunc(podCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 })
}

func ledgerStatus(c *call, pool *ipam.Pool) error {
	br, err := bridge.Open(c.conf.Bridge)
	if err != nil {
		return unavailable(err, "see the kernel's log")
	}
	defer br.Close()
	entries, ports, err := br.Ledger()
	if err != nil {
		return failure(types.ErrPluginNotAvailable, err, asCNIError(err).Details)
	}
	if ports >= bridge.MaxPorts {
		return unavailable(fmt.Errorf("bridge %s has all the %d ports it can have", c.conf.Bridge, bridge.MaxPorts), "lower max-pods of this node")
	}
	taken := map[int]bool{}
	for _, e := range entries {
		for _, a := range e.Addresses {
			if position, ok := pool.Position(a); ok {
				taken[position] = true
			}
		}
	}
	if len(pool.Longest(1, nil, 0, func(i int) bool { return taken[i] })) == 0 {
		return unavailable(fmt.Errorf("no address is free in %v: all %d are in use", c.conf.PodCIDRs, pool.Capacity()),
			"lower max-pods of this node, or give it a larger podCIDR")
	}
	return nil
}

func stateStatus(c *call, pool *ipam.Pool) error {
	hints, err := ipam.OpenHints(c.conf.StateDir, pool)
	if hints == nil {
		return unavailable(fmt.Errorf("state directory %s: %w", c.conf.StateDir, err), "make it a directory that root can write to, with free space")
	}
	c.warn(err)
	return hints.Close()
}

func forwardingStatus(podCIDRs []netip.Prefix, f bridge.Facts) error {
	switch {
	case hasFamily(podCIDRs, true) && !f.Forwarding4:
		return limited("the node forwards no IPv4 packets", "set net.ipv4.ip_forward=1")
	case hasFamily(podCIDRs, false) && !f.Forwarding6:
		return limited("the node forwards no IPv6 packets", "set net.ipv6.conf.all.forwarding=1")
	case !f.BridgeNetfilter:
		return limited("the packet filter cannot see packets between pods: module br_netfilter is missing", "modprobe br_netfilter")
	}
	return nil
}
