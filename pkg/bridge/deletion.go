package bridge

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Deleting a veth takes the kernel about 20 ms, nearly all of it waiting for
// grace periods, and hardly more for many at once. So a port to be deleted is
// first put into one group of links, doomed, and then that group is deleted:
// whichever of several callers comes first takes the others' ports along, and
// those find theirs gone.
const doomed uint32 = 0x76706372 // "vpcr"

// groupOf is the group of links in which a network's ports are, so that GC of
// one network never touches those of another.
func groupOf(network string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(network))
	if g := h.Sum32(); g != 0 && g != doomed {
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
	return l.claims(), b.delete(l.name, l.index)
}

// Collect deletes the ports on the bridge that Attach made for the network and
// for any owner but those to keep, and returns the addresses that became free.
// It goes on after a failure and returns all of them joined. It looks once, so a
// port made after the call began is never touched.
func (b *Bridge) Collect(network string, keep []Owner) ([]netip.Addr, error) {
	links, err := b.ports()
	if err != nil {
		return nil, err
	}
	kept := make(map[string]bool, len(keep))
	for _, o := range keep {
		kept[o.PortName()] = true
	}
	stale := slices.DeleteFunc(links, func(l *link) bool {
		return kept[l.name] || !l.isPort() || l.group != groupOf(network) && l.group != doomed
	})
	var freed []netip.Addr
	var errs []error
	for _, l := range stale {
		if err := b.doom(l.name, l.index); err != nil {
			errs = append(errs, err)
			continue
		}
		freed = append(freed, l.claims()...)
	}
	if len(stale) > len(errs) {
		if err := b.deleteDoomed(); err != nil {
			return nil, errors.Join(append(errs, err)...)
		}
	}
	return freed, errors.Join(errs...)
}

// delete deletes a port by its index, or by its name where that is not known;
// it is no error if it is gone.
func (b *Bridge) delete(port string, index int) error {
	if err := b.doom(port, index); err != nil {
		return err
	}
	return b.deleteDoomed()
}

func (b *Bridge) doom(port string, index int) error {
	m := linkMessage(unix.RTM_SETLINK, 0, index).attr32(unix.IFLA_GROUP, doomed)
	if index == 0 {
		m.attrText(unix.IFLA_IFNAME, port)
	}
	if err := b.host.do(m); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete host veth %s: %w", port, err)
	}
	return nil
}

// deleteDoomed deletes all links in the group; that there are none is no error,
// since another caller may have been first.
func (b *Bridge) deleteDoomed() error {
	err := b.host.do(linkMessage(unix.RTM_DELLINK, 0, 0).attr32(unix.IFLA_GROUP, doomed))
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete host veths: %w", err)
	}
	return nil
}
