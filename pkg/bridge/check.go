package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Expected is an attachment as it should be.
type Expected struct {
	Owner     Owner
	NetNS     string
	Gateways  []netip.Prefix
	Addresses []netip.Prefix
	Routes    []Route
	Hairpin   bool
	// MAC and MTU of the pod's interface; nil and 0 where they are not known.
	// Both ends must have one MTU in any case.
	MAC net.HardwareAddr
	MTU int
}

// Check compares an attachment with what it should be. A difference is a
// *MismatchError naming the first one found; any other error means that nothing
// could be found out.
func (b *Bridge) Check(e Expected) error {
	host, err := b.checkHost(e)
	if err != nil {
		return err
	}
	ns, err := openNamespace(e.NetNS)
	if errors.Is(err, ErrNamespace) {
		return &MismatchError{"network namespace " + e.NetNS, err.Error(), "that of the pod"}
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return within(ns, func() error {
		c, err := dial()
		if err != nil {
			return fmt.Errorf("open rtnetlink: %w", err)
		}
		defer c.Close()
		return e.checkPod(c, host)
	})
}

// checkHost checks the bridge and the host veth, which it returns.
func (b *Bridge) checkHost(e Expected) (*link, error) {
	object := "bridge " + b.name
	br, err := b.find()
	switch {
	case errors.Is(err, ErrNoBridge):
		return nil, missing(object)
	case errors.Is(err, ErrNotBridge):
		return nil, &MismatchError{object, "another kind of link", "a bridge"}
	case err != nil:
		return nil, err
	case !br.up:
		return nil, &MismatchError{object, "down", "up"}
	}
	if err := b.host.checkAddresses(object, br.index, e.Gateways); err != nil {
		return nil, err
	}
	object = "host veth " + e.Owner.PortName()
	l, err := b.host.linkByName(e.Owner.PortName())
	if errors.Is(err, unix.ENODEV) {
		return nil, missing(object)
	}
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", object, err)
	}
	return l, e.checkPort(object, l, br)
}

func (e Expected) checkPort(object string, l, br *link) error {
	switch {
	case l.master != br.index:
		return &MismatchError{object, "no port of " + br.name, "one"}
	case !l.up:
		return &MismatchError{object, "down", "up"}
	case l.hairpin != e.Hairpin:
		return &MismatchError{object + " hairpin", onOff(l.hairpin), onOff(e.Hairpin)}
	case e.MTU != 0 && l.mtu != e.MTU:
		return &MismatchError{object + " MTU", fmt.Sprint(l.mtu), fmt.Sprint(e.MTU)}
	}
	for _, p := range e.Addresses {
		if !slices.Contains(l.claims(), p.Addr()) {
			return &MismatchError{"the claim on address " + p.Addr().String(), "missing", "an altname of " + l.name}
		}
	}
	return nil
}

func (e Expected) checkPod(c *conn, host *link) error {
	object := "pod interface " + e.Owner.IfName
	l, err := c.linkByName(e.Owner.IfName)
	switch {
	case errors.Is(err, unix.ENODEV):
		return missing(object)
	case err != nil:
		return fmt.Errorf("look up %s: %w", object, err)
	case l.kind != kindVeth || l.peer != host.index:
		return &MismatchError{object, "another link", "the peer of " + host.name}
	case !l.up:
		return &MismatchError{object, "down", "up"}
	case e.MAC != nil && !bytes.Equal(l.mac, e.MAC):
		return &MismatchError{object + " MAC", l.mac.String(), e.MAC.String()}
	case l.mtu != host.mtu:
		return &MismatchError{object + " MTU", fmt.Sprint(l.mtu), fmt.Sprint(host.mtu)}
	}
	if err := c.checkAddresses(object, l.index, e.Addresses); err != nil {
		return err
	}
	return c.checkRoutes(l.index, e.Routes)
}

func (c *conn) checkAddresses(object string, index int, want []netip.Prefix) error {
	got, err := c.addresses(index)
	if err != nil {
		return err
	}
	for _, p := range want {
		if !slices.Contains(got, p) {
			return &MismatchError{object + " address " + p.String(), "missing", "there"}
		}
	}
	return nil
}

func (c *conn) checkRoutes(index int, want []Route) error {
	var got []route
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if !slices.ContainsFunc(want, func(r Route) bool { return familyOf(r.Dst.Addr()) == family }) {
			continue
		}
		routes, err := c.routes(family, index)
		if err != nil {
			return err
		}
		got = append(got, routes...)
	}
	for _, r := range want {
		if !slices.Contains(got, route{r.Dst, r.GW, index}) {
			return &MismatchError{fmt.Sprintf("pod route %s via %s", r.Dst, r.GW), "missing", "there"}
		}
	}
	return nil
}

func missing(object string) error { return &MismatchError{object, "missing", "there"} }

func onOff(set bool) string {
	if set {
		return "on"
	}
	return "off"
}
