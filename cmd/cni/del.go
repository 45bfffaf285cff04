package main

import (
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
		c.warn(freed(c.conf, c.released()))
	}
	return nil, nil
}

// released are the addresses that the pod had: those of its port or, when that
// went before the DEL came, those of the previous result, which serve as a hint
// as far as they can be read.
func (c *call) released() []netip.Addr {
	if len(c.addresses) > 0 {
		return c.addresses
	}
	r, err := readPrevResult(c.conf.PrevResult)
	if err != nil {
		return nil
	}
	return r.addresses()
}
