package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Retire takes from the bridge the gateways of ranges that are not among those
// to keep and that no port has an address of any more, and returns them. It is
// for a node whose podCIDRs changed; link-local addresses stay.
func (b *Bridge) Retire(keep []netip.Prefix) ([]netip.Prefix, error) {
	br, err := b.find()
	if errors.Is(err, ErrNoBridge) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held, err := b.host.addresses(br.index)
	if err != nil {
		return nil, err
	}
	entries, _, err := b.Ledger()
	if err != nil {
		return nil, err
	}
	var retired []netip.Prefix
	var errs []error
	for _, gateway := range held {
		if gateway.Addr().IsLinkLocalUnicast() || slices.Contains(keep, gateway) || inUse(entries, gateway.Masked()) {
			continue
		}
		m := addressMessage(unix.RTM_DELADDR, 0, br.index, gateway)
		if err := b.host.do(m); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("remove gateway %s from %s: %w", gateway, b.name, err))
			continue
		}
		retired = append(retired, gateway)
	}
	return retired, errors.Join(errs...)
}

func inUse(entries []Entry, r netip.Prefix) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return slices.ContainsFunc(e.Addresses, r.Contains) })
}

// Remove deletes the bridge, unless it has a port; then it returns how many. It
// is not an error if the bridge is gone already.
func (b *Bridge) Remove() (ports int, err error) {
	links, err := b.ports()
	if err != nil || len(links) > 0 {
		return len(links), err
	}
	br, err := b.find()
	if errors.Is(err, ErrNoBridge) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := b.host.do(linkMessage(unix.RTM_DELLINK, 0, br.index)); err != nil && !errors.Is(err, unix.ENODEV) {
		return 0, fmt.Errorf("delete bridge %s: %w", b.name, err)
	}
	return 0, nil
}
