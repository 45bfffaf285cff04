package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// An Entry is a port as it stands in the ledger.
type Entry struct {
	// Name is the host veth's name: that of its owner's PortName.
	Name string
	// Alias says in words whose it is; empty while it is being attached.
	Alias string
	// Addresses are those it claims.
	Addresses []netip.Addr
}

// Ledger lists the ports of the bridge that Attach made, and how many ports the
// bridge has in all. A bridge that does not exist has none.
func (b *Bridge) Ledger() (entries []Entry, ports int, err error) {
	links, err := b.ports()
	if err != nil {
		return nil, 0, err
	}
	for _, l := range links {
		if l.isPort() {
			entries = append(entries, Entry{l.name, l.alias, l.claims()})
		}
	}
	return entries, len(links), nil
}

func (b *Bridge) ports() ([]*link, error) {
	br, err := b.find()
	if errors.Is(err, ErrNoBridge) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	links, err := b.host.portsOf(br.index)
	if err != nil {
		return nil, fmt.Errorf("list the ports of %s: %w", b.name, err)
	}
	return links, nil
}

// isPort tells whether Attach made a link: name and hardware address then come
// from one hash. Anything else on the bridge belongs to somebody else.
func (l *link) isPort() bool {
	digits, ok := strings.CutPrefix(l.name, portPrefix)
	if !ok || len(digits) != 12 || l.kind != kindVeth || len(l.mac) != 6 {
		return false
	}
	hash, err := portName.DecodeString(digits[:8])
	return err == nil && l.mac[0] == hostMACPrefix && bytes.Equal(hash, l.mac[1:])
}

// SetHairpin switches hairpin on or off at every port that Attach made, for
// those made under another configuration. It goes on after a failure.
func (b *Bridge) SetHairpin(on bool) error {
	links, err := b.ports()
	errs := []error{err}
	for _, l := range links {
		if !l.isPort() || l.hairpin == on {
			continue
		}
		m := linkMessage(unix.RTM_NEWLINK, 0, l.index).bridgePort(on)
		if err := b.host.do(m); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("set hairpin of host veth %s: %w", l.name, err))
		}
	}
	return errors.Join(errs...)
}
