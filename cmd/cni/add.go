package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/ipam"
	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// add attaches a pod.
func add(c *call) (*types100.Result, error) {
	if err := c.needConf(); err != nil {
		return nil, err
	}
	if c.conf.PrevResult != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, errors.New("vpcroute makes the pod's interface and found the result of a plugin before it"),
			"put vpcroute first in the conflist's plugins")
	}
	pool, err := ipam.New(c.conf.PodCIDRs, c.conf.Exclude)
	if err != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, err, "correct podCIDRs and exclude in the conflist")
	}
	br, err := bridge.Open(c.conf.Bridge)
	if err != nil {
		return nil, err
	}
	defer br.Close()
	mtu, err := br.Ensure(bridge.Settings{Gateways: pool.Gateways(), MTU: c.conf.MTU})
	if err != nil {
		return nil, err
	}
	hints, err := ipam.OpenHints(c.conf.StateDir, pool)
	c.warn(err)
	defer hints.Close()
	s := search{conf: c.conf, pool: pool, hints: hints, bridge: br}
	a, err := br.Attach(bridge.Port{
		Owner:   c.owner(),
		Network: c.conf.Name,
		NetNS:   c.args.Netns,
		Alias:   alias(c.pod, c.args.ContainerID, c.args.IfName),
		MTU:     mtu,
		Hairpin: c.conf.HairpinMode,
		MAC:     c.conf.MAC,
		Routes:  portRoutes(c.conf.Routes),
	}, s.next)
	c.warn(s.warning)
	if err != nil {
		return nil, err
	}
	c.warn(s.hot)
	for _, x := range a.Addresses {
		c.addresses = append(c.addresses, x.Prefix.Addr())
	}
	return addResult(c, a, mtu), nil
}

func portRoutes(routes []netconf.Route) []bridge.Route {
	var out []bridge.Route
	for _, r := range routes {
		out = append(out, bridge.Route{Dst: r.Dst, GW: r.GW})
	}
	return out
}

// addResult puts an attachment into CNI's terms.
func addResult(c *call, a *bridge.Attachment, mtu int) *types100.Result {
	const podIndex = 2 // of the pod's interface in the list below
	if c.conf.CNIVersion != "1.1.0" {
		mtu = 0 // came with that version, and the conversion leaves it in
	}
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: c.conf.Bridge, Mac: a.BridgeMAC.String(), Mtu: mtu},
			{Name: c.owner().PortName(), Mac: a.HostMAC.String(), Mtu: mtu},
			{Name: c.args.IfName, Mac: a.PodMAC.String(), Mtu: mtu, Sandbox: c.args.Netns},
		},
		DNS: types.DNS(c.conf.DNS),
	}
	for _, x := range a.Addresses {
		r.IPs = append(r.IPs, &types100.IPConfig{
			Interface: types100.Int(podIndex), Address: ipNet(x.Prefix), Gateway: x.Gateway.AsSlice(),
		})
	}
	for _, x := range a.Routes {
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(x.Dst), GW: x.GW.AsSlice()})
	}
	return r
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// sinceBoot is the clock of the hints.
func sinceBoot() ipam.Stamp {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails for an unknown clock only
	return time.Duration(t.Nano())
}

// freed notes when addresses came free.
func freed(conf *netconf.Config, addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	pool, err := ipam.New(conf.PodCIDRs, conf.Exclude)
	if err != nil {
		return err
	}
	hints, err := ipam.OpenHints(conf.StateDir, pool)
	if hints == nil {
		return err
	}
	defer hints.Close()
	errs := []error{err}
	for _, a := range addresses {
		if position, ok := pool.Position(a); ok {
			errs = append(errs, hints.Touch(position, sinceBoot()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("note the release: %w", err)
	}
	return nil
}
