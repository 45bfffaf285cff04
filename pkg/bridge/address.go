package bridge

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// familyOf is the kernel's number for an address's family.
func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// addAddress gives a link an address; it is no error if it has it already. IPv6
// addresses come without duplicate-address detection: the ledger has proved them
// unique, and the probe's wait keeps a program from binding to its own address.
func (c *conn) addAddress(index int, p netip.Prefix) error {
	m := addressMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, p)
	if p.Addr().Is6() {
		m.attr32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
	}
	if err := c.do(m); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add address %s: %w", p, err)
	}
	return nil
}

func addressMessage(kind, flags uint16, index int, p netip.Prefix) *message {
	m := &message{kind: kind, flags: flags, body: make([]byte, unix.SizeofIfAddrmsg)}
	m.body[0], m.body[1] = familyOf(p.Addr()), byte(p.Bits())
	if p.Addr().IsLinkLocalUnicast() {
		m.body[3] = unix.RT_SCOPE_LINK
	}
	native.PutUint32(m.body[4:], uint32(index))
	return m.attr(unix.IFA_LOCAL, p.Addr().AsSlice()).attr(unix.IFA_ADDRESS, p.Addr().AsSlice())
}

// addresses lists the addresses of a link that can be used: an IPv6 one still
// or for ever in duplicate-address detection is left out.
func (c *conn) addresses(index int) ([]netip.Prefix, error) {
	m := &message{kind: unix.RTM_GETADDR, body: make([]byte, unix.SizeofIfAddrmsg)}
	native.PutUint32(m.body[4:], uint32(index))
	found, err := c.dump(m)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []netip.Prefix
	for _, b := range found {
		if p, ok := parseAddress(b, index); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func parseAddress(b []byte, index int) (netip.Prefix, bool) {
	if len(b) < unix.SizeofIfAddrmsg || int(native.Uint32(b[4:])) != index {
		return netip.Prefix{}, false
	}
	flags := uint32(b[2])
	var address, local netip.Addr
	for kind, v := range attributes(b[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(v)
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(v)
		case unix.IFA_FLAGS:
			flags = number32(v)
		}
	}
	if local.IsValid() {
		address = local
	}
	usable := flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
	return netip.PrefixFrom(address, int(b[1])), address.IsValid() && usable
}

// linkLocal is the link-local address of an interface with a given hardware
// address (RFC 4291 appendix A), with the length of its range.
func linkLocal(mac []byte) netip.Prefix {
	a := [16]byte{0: 0xfe, 1: 0x80, 11: 0xff, 12: 0xfe}
	copy(a[8:], mac[:3])
	copy(a[13:], mac[3:6])
	a[8] ^= 2
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}
