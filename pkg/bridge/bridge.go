// Package bridge is cbr0 and its ports, and with them the ledger of addresses:
// an address is claimed exactly as long as a port carries it as an altname. The
// kernel keeps those names unique, so adding one is the atomic claim, and it
// drops them with the port, so nothing can leak. Nothing is kept anywhere else.
//
// The package talks to the kernel only: it must not know CNI or pkg/ipam,
// choose an address, log, or read flags or the environment.
package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	kindBridge = "bridge"
	kindVeth   = "veth"
)

// MaxPorts is how many ports a bridge holds (BR_MAX_PORTS in the kernel's
// net/bridge/br_private.h, less the number 0).
const MaxPorts = 1023

// A Bridge is a bridge and its ports in one network namespace, whether they
// exist yet or not. It is not for concurrent use; any number of processes may
// each have their own.
type Bridge struct {
	name string
	host *conn
}

// Settings are what Ensure brings a bridge to.
type Settings struct {
	// Gateways are the addresses of the bridge, one per range, with the range's
	// length; there is at least one. The first gives the bridge its hardware
	// address.
	Gateways []netip.Prefix
	// MTU in bytes; 0 for the uplink's.
	MTU int
}

// Open returns the bridge of that name in the calling thread's network
// namespace. It changes nothing there.
func Open(name string) (*Bridge, error) {
	host, err := dial()
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return &Bridge{name, host}, nil
}

// Close releases what Open took. The bridge stays.
func (b *Bridge) Close() error { return b.host.Close() }

// Ensure makes the bridge if it is missing and brings it to its settings, and
// returns the MTU its ports should have. Any number of callers may do so at
// once. Addresses that the bridge has beside its gateways stay: pods of an
// earlier range may still use them.
func (b *Bridge) Ensure(s Settings) (mtu int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bridge %s: %w", b.name, err)
		}
	}()
	if s.wantsIPv6() && !hasIPv6() {
		return 0, ErrNoIPv6
	}
	if s.MTU == 0 {
		if s.MTU, err = b.uplinkMTU(); err != nil {
			return 0, fmt.Errorf("find the uplink's MTU: %w", err)
		}
	}
	l, err := b.findOrCreate(s)
	if err != nil {
		return 0, err
	}
	if !s.matches(l) {
		if err := b.host.do(s.message(l.index)); err != nil {
			return 0, fmt.Errorf("set up: %w", err)
		}
	}
	return s.MTU, b.ensureAddresses(l.index, s)
}

func (b *Bridge) findOrCreate(s Settings) (*link, error) {
	l, err := b.find()
	if !errors.Is(err, ErrNoBridge) {
		return l, err
	}
	// It comes up only with the rest of its settings, in one further message:
	// so whoever finds it up finds it complete, and no port gets a carrier, nor
	// the bridge an address of the kernel's own making, before that.
	m := linkMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0).
		attrText(unix.IFLA_IFNAME, b.name).
		attr(unix.IFLA_ADDRESS, s.mac()).
		attr32(unix.IFLA_MTU, uint32(creationMTU(s.MTU)))
	m.nest(unix.IFLA_LINKINFO, func() { m.attrText(unix.IFLA_INFO_KIND, kindBridge) })
	if err := b.host.do(m); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("create: %w", err)
	}
	return b.find()
}

// creationMTU is any MTU but the wanted one. The kernel keeps lowering a
// bridge's MTU to the smallest of its ports' until somebody changes it
// (br_change_mtu, br_mtu_auto_adjust), and setting the value it has already is
// no change.
func creationMTU(wanted int) int {
	if wanted == defaultMTU {
		return defaultMTU - 1
	}
	return defaultMTU
}

// find returns the bridge's link, ErrNoBridge when there is none.
func (b *Bridge) find() (*link, error) {
	l, err := b.host.linkByName(b.name)
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil, ErrNoBridge
	case err != nil:
		return nil, fmt.Errorf("look up: %w", err)
	case l.kind != kindBridge || l.name != b.name:
		return nil, fmt.Errorf("%w: %s is a link of kind %q", ErrNotBridge, l.name, l.kind)
	}
	return l, nil
}

// mac is computed, so that it neither moves as ports come and go nor invites
// udev to choose one.
func (s Settings) mac() net.HardwareAddr {
	return macFor(s.Gateways[0].Addr(), gatewayIndex)
}

func (s Settings) wantsIPv6() bool {
	return slices.ContainsFunc(s.Gateways, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

func (s Settings) matches(l *link) bool {
	return l.up && l.mtu == s.MTU && slices.Equal(l.mac, s.mac()) &&
		l.stp == 0 && l.snooping == 0 && l.nfCall4 == 1 && l.nfCall6 == 1 &&
		(l.addrGen == addrGenNone || !hasIPv6())
}

// message asks for all settings at once.
func (s Settings) message(index int) *message {
	m := linkMessage(unix.RTM_NEWLINK, 0, index).up().
		attr32(unix.IFLA_MTU, uint32(s.MTU)).
		attr(unix.IFLA_ADDRESS, s.mac()).
		noAddrGen()
	return m.nest(unix.IFLA_LINKINFO, func() {
		m.attrText(unix.IFLA_INFO_KIND, kindBridge)
		m.nest(unix.IFLA_INFO_DATA, func() {
			m.attr32(unix.IFLA_BR_STP_STATE, 0)
			m.attr8(unix.IFLA_BR_MCAST_SNOOPING, 0)
			m.attr8(unix.IFLA_BR_NF_CALL_IPTABLES, 1)
			m.attr8(unix.IFLA_BR_NF_CALL_IP6TABLES, 1)
		})
	})
}

func (b *Bridge) ensureAddresses(index int, s Settings) error {
	wanted := s.Gateways
	if s.wantsIPv6() {
		// Neighbour discovery for forwarded packets is sent from a link-local
		// address or not at all (ndisc_send_ns in net/ipv6/ndisc.c).
		wanted = append(slices.Clone(wanted), linkLocal(s.mac()))
	}
	for _, p := range wanted {
		err := b.host.addAddress(index, p)
		if p.Addr().Is6() && errors.Is(err, unix.EACCES) {
			return fmt.Errorf("%w (net.ipv6.conf.%s.disable_ipv6): %w", ErrNoIPv6, b.name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gatewayIndex is the index of a range's gateway, its first usable address.
const gatewayIndex = 1

// addrGenNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenNone = 1

// noAddrGen keeps the kernel from giving a link IPv6 addresses of its own
// making. Their probes and multicast reports go to every port of the bridge, and
// make each attachment slower than the one before.
func (m *message) noAddrGen() *message {
	if !hasIPv6() {
		return m // the kernel refuses settings of a family it lacks
	}
	return m.nest(unix.IFLA_AF_SPEC, func() {
		m.nest(unix.AF_INET6, func() { m.attr8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenNone) })
	})
}

// hasIPv6 tells whether the kernel has IPv6: booted with ipv6.disable=1 it has
// the module, but neither addresses nor settings.
func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf")
	return err == nil
}
