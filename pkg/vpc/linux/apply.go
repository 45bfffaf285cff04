package linux

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A writer makes the changes of one Apply.
type writer struct {
	t     *Table
	conn  *conn
	table uint32
	found map[netip.Prefix][]entry // what the table held when it was last read, and our writes since
}

func byDestination(entries []entry) map[netip.Prefix][]entry {
	found := map[netip.Prefix][]entry{}
	for _, e := range entries {
		found[e.destination] = append(found[e.destination], e)
	}
	return found
}

func (w *writer) reread() error {
	entries, err := w.conn.entries(w.table)
	if err == nil {
		w.found = byDestination(entries)
	}
	return err
}

func (w *writer) apply(c vpc.Change) error {
	op := fmt.Sprintf("%s route %v to %s", c.Op, c.Route.Destination, c.Route.NextHop)
	if c.Route.Table != tableName(w.table) {
		return failure(op, vpc.Errorf(vpc.NotFound, "table %q is not the managed table %d", c.Route.Table, w.table))
	}
	switch c.Op {
	case vpc.Delete:
		return failure(op, w.delete(c.Route))
	case vpc.Create, vpc.Replace:
		want, err := w.wanted(c.Route)
		if err != nil {
			return failure(op, err)
		}
		if c.Op == vpc.Create {
			return failure(op, w.create(want))
		}
		return failure(op, w.replace(want, c.Old))
	default:
		return failure(op, vpc.Errorf(vpc.Invalid, "unknown operation %q", c.Op))
	}
}

// wanted builds the entry for a route.
func (w *writer) wanted(r vpc.Route) (entry, error) {
	if d := r.Destination; !d.IsValid() || d != d.Masked() || d.Addr().Is4In6() {
		return entry{}, vpc.Errorf(vpc.Invalid, "destination is not a range such as 10.244.1.0/24")
	}
	gateway, err := netip.ParseAddr(string(r.NextHop))
	if err != nil || gateway.Zone() != "" {
		return entry{}, vpc.Errorf(vpc.Invalid, "next hop %q is not an address such as 10.0.0.7", r.NextHop)
	}
	if gateway.Is4() != r.Destination.Addr().Is4() {
		return entry{}, vpc.Errorf(vpc.Invalid, "next hop %v is not of the destination's family", gateway)
	}
	return entry{
		destination: r.Destination,
		gateway:     gateway,
		protocol:    uint8(w.t.config.Protocol),
		header: unix.RtMsg{
			Family: linuxFamily(vpc.FamilyOf(r.Destination)), Dst_len: uint8(r.Destination.Bits()),
			Protocol: uint8(w.t.config.Protocol), Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
		},
		attrs: attributes{
			unix.RTA_DST:     r.Destination.Addr().AsSlice(),
			unix.RTA_GATEWAY: gateway.AsSlice(),
			unix.RTA_TABLE:   nl.Uint32Attr(w.table),
		},
	}, nil
}

// create makes an entry where the destination is free.
func (w *writer) create(want entry) error {
	if done, err := w.settled(want); done {
		return err
	}
	err := w.add(want, unix.NLM_F_EXCL)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := w.reread(); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if done, err := w.settled(want); done {
		return err
	}
	return vpc.Errorf(vpc.InProgress, "the destination was taken and is free again: %w", err)
}

// settled is true when nothing is left to do for a create: the wanted entry is
// there, or another one is, which is an error.
func (w *writer) settled(want entry) (done bool, err error) {
	taken := w.found[want.destination]
	switch {
	case w.has(want):
		return true, nil
	case len(taken) > 0:
		return true, vpc.Errorf(vpc.Exists, "the table has an entry %s already", w.name(taken[0]))
	}
	return false, nil
}

func (w *writer) has(want entry) bool {
	return slices.ContainsFunc(w.found[want.destination], func(e entry) bool {
		return w.t.ours(e) && e.gateway == want.gateway
	})
}

func (w *writer) name(e entry) string {
	r := w.t.route(e, w.table)
	if r.NextHop == "" {
		return fmt.Sprintf("of %q without a single gateway", r.Owner)
	}
	return fmt.Sprintf("of %q to %s", r.Owner, r.NextHop)
}

// add has the kernel make an entry; how is NLM_F_EXCL or NLM_F_APPEND.
func (w *writer) add(e entry, how int) error {
	parts := []nl.NetlinkRequestData{&nl.RtMsg{RtMsg: e.header}}
	for _, key := range slices.Sorted(maps.Keys(e.attrs)) {
		parts = append(parts, nl.NewRtAttr(int(key), e.attrs[key]))
	}
	if err := w.conn.send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|how, parts...); err != nil {
		return err
	}
	w.found[e.destination] = append(w.found[e.destination], e)
	return nil
}

// replace puts the wanted entry in the place of an old one of ours.
func (w *writer) replace(want entry, old vpc.Route) error {
	replaced, ok := w.find(old)
	if !ok {
		return w.create(want)
	}
	if !w.has(want) {
		if err := w.append(want); err != nil {
			return err
		}
	}
	if err := w.remove(replaced); err != nil {
		return fmt.Errorf("remove the old entry beside the new one: %w", err)
	}
	return nil
}

func (w *writer) append(want entry) error {
	err := w.add(want, unix.NLM_F_APPEND)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := w.reread(); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !w.has(want) {
		return vpc.Errorf(vpc.Exists, "another owner has an entry to the same next hop: %w", err)
	}
	return nil
}

// delete removes an entry of ours; one that is gone is no error.
func (w *writer) delete(r vpc.Route) error {
	if e, ok := w.find(r); ok {
		return w.remove(e)
	}
	foreign := func(e entry) bool { return w.t.route(e, w.table).Owner == r.Owner && !w.t.ours(e) }
	if slices.ContainsFunc(w.found[r.Destination], foreign) {
		return vpc.Errorf(vpc.Denied, "the entry belongs to another owner (%q)", r.Owner)
	}
	return nil
}

// find looks for the entry of ours that was listed as r.
func (w *writer) find(r vpc.Route) (entry, bool) {
	candidates := w.found[r.Destination]
	i := slices.IndexFunc(candidates, func(e entry) bool {
		listed := w.t.route(e, w.table)
		return w.t.ours(e) && listed.NextHop == r.NextHop && (r.ID == "" || r.ID == listed.ID)
	})
	if i < 0 {
		return entry{}, false
	}
	return candidates[i], true
}

// remove deletes exactly one entry. The kernel answers ESRCH when the entry is
// gone, and also when it is there under another protocol: one of several IPv6
// paths that a stranger added to ours.
func (w *writer) remove(e entry) error {
	err := w.conn.send(unix.RTM_DELROUTE, 0, e.deletion()...)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return w.confirmGone(e)
	}
	if err == nil {
		w.found[e.destination] = slices.DeleteFunc(slices.Clone(w.found[e.destination]), func(f entry) bool { return same(e, f) })
	}
	return err
}

func (w *writer) confirmGone(e entry) error {
	if err := w.reread(); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if slices.ContainsFunc(w.found[e.destination], func(f entry) bool { return same(e, f) }) {
		return vpc.Errorf(vpc.Exists, "the kernel does not delete it as ours: a stranger added this path to our entry")
	}
	return nil
}

func same(a, b entry) bool {
	return a.gateway == b.gateway && a.protocol == b.protocol && a.id() == b.id()
}
