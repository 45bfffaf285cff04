package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// A prevResult is what is needed of a result that the runtime hands back. All
// versions of the protocol from 0.3.1 on spell these fields alike.
type prevResult struct {
	CNIVersion string `json:"cniVersion"`
	Interfaces []struct {
		Name    string `json:"name"`
		MAC     string `json:"mac"`
		MTU     int    `json:"mtu"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Address   netip.Prefix `json:"address"`
		Gateway   netip.Addr   `json:"gateway"`
		Interface *int         `json:"interface"`
	} `json:"ips"`
	Routes []struct {
		Dst netip.Prefix `json:"dst"`
		GW  netip.Addr   `json:"gw"`
	} `json:"routes"`
}

func readPrevResult(raw json.RawMessage) (*prevResult, error) {
	if raw == nil {
		return nil, errors.New("prevResult is missing")
	}
	r := &prevResult{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	if !slices.Contains(supported.SupportedVersions(), r.CNIVersion) {
		return nil, fmt.Errorf("prevResult is of version %q, which is none of %v", r.CNIVersion, supported.SupportedVersions())
	}
	return r, nil
}

// addresses are those of all interfaces.
func (r *prevResult) addresses() []netip.Addr {
	var out []netip.Addr
	for _, ip := range r.IPs {
		if ip.Address.IsValid() {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}

// expect says what the result tells of an attachment.
func (r *prevResult) expect(e *bridge.Expected) error {
	at := -1
	for i, x := range r.Interfaces {
		if x.Name == e.Owner.IfName && x.Sandbox != "" {
			at = i
		}
	}
	if at < 0 {
		return fmt.Errorf("prevResult has no interface %s of a pod", e.Owner.IfName)
	}
	var err error
	if e.MAC, err = net.ParseMAC(r.Interfaces[at].MAC); err != nil {
		return fmt.Errorf("prevResult: interface %s: %w", e.Owner.IfName, err)
	}
	e.MTU = r.Interfaces[at].MTU
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface != at || !ip.Address.IsValid() {
			continue
		}
		e.Addresses = append(e.Addresses, ip.Address)
		if ip.Gateway.IsValid() {
			e.Gateways = append(e.Gateways, netip.PrefixFrom(ip.Gateway, ip.Address.Bits()))
		}
	}
	for _, x := range r.Routes {
		if x.Dst.IsValid() && x.GW.IsValid() {
			e.Routes = append(e.Routes, bridge.Route{Dst: x.Dst, GW: x.GW})
		}
	}
	if len(e.Addresses) == 0 {
		return fmt.Errorf("prevResult has no address for %s", e.Owner.IfName)
	}
	return nil
}
