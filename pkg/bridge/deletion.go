package bridge

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Deleting a veth takes the kernel about 20 ms, nearly all of it waiting for a
// grace period. Callers at the same moment share that wait by themselves (16
// took 36 ms together); one caller with many ports shares it by deleting them as
// one group of links, this one.
const doomed uint32 = 0x76706372 // "vpcr"

// groupOf is the group of links in which a network's ports are, so that GC of
// one network never touches those of another. It is a positive number, since
// iproute2 prints it signed.
func groupOf(network string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(network))
	if g := h.Sum32() >> 1; g != 0 && g != doomed {
		return g
	}
	return 1
}

// Detach deletes the owner's port and with it the claim on its addresses, which
// it returns. A port that is gone already is no error and had none. After any
// error the addresses are still claimed.
func (b *Bridge) Detach(o Owner) ([]netip.Addr, error) {
	l, err := b.host.linkByName(o.PortName())
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up host veth %s: %w", o.PortName(), err)
	}
	err = b.delete(linkMessage(unix.RTM_DELLINK, 0, l.index), "host veth "+l.name)
	if errors.Is(err, errNoAnswer) {
		if _, lookErr := b.host.linkByIndex(l.index); errors.Is(lookErr, unix.ENODEV) {
			err = nil
		}
	}
	return l.claims(), err
}

// undo deletes the port that a failed Attach has made.
func (b *Bridge) undo(o Owner) error {
	m := linkMessage(unix.RTM_DELLINK, 0, 0).attrText(unix.IFLA_IFNAME, o.PortName())
	return b.delete(m, "host veth "+o.PortName())
}

// undoUnclaimed deletes the port that an Attach may have made. One that claims
// addresses is that of an earlier call.
func (b *Bridge) undoUnclaimed(o Owner) error {
	l, err := b.host.linkByName(o.PortName())
	if errors.Is(err, unix.ENODEV) || err == nil && len(l.claims()) > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up host veth %s: %w", o.PortName(), err)
	}
	return b.undo(o)
}

// delete sends a message that deletes something; that it is gone is no error.
func (b *Bridge) delete(m *message, object string) error {
	if err := b.host.do(m); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", object, err)
	}
	return nil
}

// Collect deletes the ports on the bridge that Attach made for the network and
// for any owner but those to keep, and returns the addresses that became free.
// It goes on after a failure and returns all of them joined. It looks once, so a
// port made after the call began is never touched.
func (b *Bridge) Collect(network string, keep []Owner) ([]netip.Addr, error) {
	stale, err := b.stale(network, keep)
	if err != nil || len(stale) == 0 {
		return nil, err
	}
	var freed []netip.Addr
	var errs []error
	for _, l := range stale {
		err := b.host.do(linkMessage(unix.RTM_SETLINK, 0, l.index).attr32(unix.IFLA_GROUP, doomed))
		if err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("delete host veth %s: %w", l.name, err))
			continue
		}
		freed = append(freed, l.claims()...)
	}
	if err := b.delete(linkMessage(unix.RTM_DELLINK, 0, 0).attr32(unix.IFLA_GROUP, doomed), "unlisted host veths"); err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	return freed, errors.Join(errs...)
}

// stale lists the ports that Collect must delete, with those that an earlier
// Collect left between its two steps.
func (b *Bridge) stale(network string, keep []Owner) ([]*link, error) {
	kept := make(map[string]bool, len(keep))
	for _, o := range keep {
		kept[o.PortName()] = true
	}
	links, err := b.ports()
	return slices.DeleteFunc(links, func(l *link) bool {
		ours := l.isPort() && (l.group == groupOf(network) || l.group == doomed)
		return kept[l.name] || !ours
	}), err
}
