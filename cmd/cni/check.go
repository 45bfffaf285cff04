package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// check compares a pod's attachment with the result of its ADD.
func check(c *call) (*types100.Result, error) {
	if err := c.needConf(); err != nil {
		return nil, err
	}
	e, err := expected(c)
	if err != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, err, "CHECK needs the result of this attachment's ADD")
	}
	br, err := bridge.Open(c.conf.Bridge)
	if err != nil {
		return nil, tryLater(err)
	}
	defer br.Close()
	err = br.Check(e)
	var mismatch *bridge.MismatchError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &mismatch):
		return nil, failure(codeMismatch, err, "the pod must be made anew")
	}
	return nil, tryLater(err)
}

// tryLater says that nothing could be found out, which is no fault of the pod.
func tryLater(err error) error {
	return failure(types.ErrTryAgainLater, err, "nothing is known to be wrong with the pod; try again later")
}

// expected reads from the previous result how the attachment should be.
func expected(c *call) (bridge.Expected, error) {
	e := bridge.Expected{Owner: c.owner(), NetNS: c.args.Netns, Hairpin: c.conf.HairpinMode}
	r, err := previousResult(c.conf.PrevResult)
	if err != nil {
		return e, err
	}
	for i, x := range r.Interfaces {
		if x.Name != c.args.IfName || x.Sandbox == "" {
			continue
		}
		if e.MAC, err = net.ParseMAC(x.Mac); err != nil {
			return e, fmt.Errorf("prevResult: interface %s: %w", x.Name, err)
		}
		e.MTU = x.Mtu
		for _, ip := range r.IPs {
			if ip.Interface != nil && *ip.Interface == i {
				e.Addresses = append(e.Addresses, prefix(ip.Address))
				if ip.Gateway != nil {
					e.Gateways = append(e.Gateways, gatewayOf(ip))
				}
			}
		}
	}
	if len(e.Addresses) == 0 {
		return e, fmt.Errorf("prevResult has no address for %s", c.args.IfName)
	}
	for _, x := range r.Routes {
		gw, ok := netip.AddrFromSlice(x.GW)
		if ok {
			e.Routes = append(e.Routes, bridge.Route{Dst: prefix(x.Dst), GW: gw.Unmap()})
		}
	}
	return e, nil
}

// previousResult reads a result of any version that can be asked for.
func previousResult(raw json.RawMessage) (*types100.Result, error) {
	if raw == nil {
		return nil, errNoPrevResult
	}
	var v struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	r, err := create.Create(v.CNIVersion, raw)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	return types100.GetResult(r)
}

// gatewayOf is the gateway of an address as the bridge has it.
func gatewayOf(ip *types100.IPConfig) netip.Prefix {
	return prefix(net.IPNet{IP: ip.Gateway, Mask: ip.Address.Mask})
}

func prefix(n net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}
