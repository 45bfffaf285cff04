package main

import (
	"encoding/json"
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// del detaches a pod. It needs neither the pod's namespace nor a previous result
// nor a right configuration: the port is found by its computed name.
func del(c *call) (*types100.Result, error) {
	c.warn(c.confErr)
	br, err := bridge.Open(c.conf.Bridge)
	if err != nil {
		return nil, err
	}
	defer br.Close()
	if c.addresses, err = br.Detach(c.owner()); err != nil {
		return nil, err
	}
	if c.confErr == nil {
		released := c.addresses
		if len(released) == 0 {
			released = previousAddresses(c.conf.PrevResult)
		}
		c.warn(freed(c.conf, released))
	}
	return nil, nil
}

// previousAddresses reads the addresses in a result of any version, as far as
// they can be read: they serve as a hint only, when the port went before its DEL
// came.
func previousAddresses(result json.RawMessage) []netip.Addr {
	var r struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	}
	_ = json.Unmarshal(result, &r)
	var out []netip.Addr
	for _, ip := range r.IPs {
		if p, err := netip.ParsePrefix(ip.Address); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}
