// Package linux makes a kernel routing table a VPC route table: the router of a
// VPC in a box, a gateway machine on premises, or a VRF. It speaks netlink to
// one table of one network namespace.
//
// The owner's mark is the route's protocol number (rtm_protocol, rtnetlink(7)),
// of which an installation uses one that nobody else on the machine does. Every
// write is one that the kernel can only apply to an entry with that number, so
// a foreign entry cannot be changed even when it appears between a look and a
// write. The package must not start programs, keep state about routes, or
// change anything but routes of its protocol; it checks forwarding and rules
// but never sets them.
package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// DefaultProtocol is a route protocol number that no known routing program
	// uses, for an installation that is alone on its machine.
	DefaultProtocol = 201
	// DefaultTimeout bounds a call whose context has no earlier deadline.
	DefaultTimeout = 10 * time.Second
)

// Config says which kernel table to write to, and as whom.
type Config struct {
	// Namespace is the path of a network namespace, for example
	// "/run/netns/vpc"; empty means this process's own.
	Namespace string
	// Table is the routing table's id, 1 to 4294967295 as in "ip route show
	// table N"; 0 means the main table (254), or the VRF's when VRF is set.
	Table int
	// VRF is the name of a VRF device whose table is meant; empty means none.
	VRF string
	// Protocol is the route protocol number that marks our routes, 5 to 255.
	Protocol int
	// Owner is the installation's mark (its cluster id) that List reports for
	// routes of our protocol.
	Owner string
	// Ranges are the cluster CIDRs, which Preflight compares with the
	// namespace's own subnets; with none it compares nothing.
	Ranges []netip.Prefix
	// Timeout bounds every call; 0 means DefaultTimeout.
	Timeout time.Duration
}

// validate returns all that is wrong with a Config, joined.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Table < 0 || c.Table > 1<<32-1 {
		bad("table %d is not a routing table id: use 1 to 4294967295, for example 254 for main", c.Table)
	}
	if c.Table != 0 && c.VRF != "" {
		bad("table %d and VRF %q are both given: name one of them", c.Table, c.VRF)
	}
	if c.Protocol <= unix.RTPROT_STATIC || c.Protocol > 255 {
		bad("protocol %d cannot mark our routes: use a number from 5 to 255 that nothing else on the machine uses, for example %d", c.Protocol, DefaultProtocol)
	} else if name, known := knownProtocol(c.Protocol); known {
		bad("protocol %d belongs to %s: use a number that nothing else on the machine uses, for example %d", c.Protocol, name, DefaultProtocol)
	}
	if c.Owner == "" {
		bad("owner is empty: give the cluster id, for example \"prod-1\"")
	}
	if c.Timeout < 0 {
		bad("timeout %v is negative: use for example %v", c.Timeout, DefaultTimeout)
	}
	return errors.Join(errs...)
}

// knownProtocol names a protocol number that rtnetlink(7) or a routing program
// has taken.
func knownProtocol(n int) (name string, known bool) {
	name = netlink.RouteProtocol(n).String()
	return name, name != strconv.Itoa(n)
}

// A Table is one kernel routing table as a vpc.RouteTable.
type Table struct {
	config Config

	mu    sync.Mutex
	asked map[netip.Addr]string // next hops given out by NextHop, with their node, for Preflight
}

var _ vpc.RouteTable = (*Table)(nil)

// New returns the table that a Config describes, or all that is wrong with it.
// It does not look at the kernel: the namespace or device may come later.
func New(c Config) (*Table, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return &Table{config: c, asked: map[netip.Addr]string{}}, nil
}

// NextHop returns the node's first internal address of the family, for the
// kernel forwards to addresses. It fails with class Invalid when the node has
// none that could be a gateway. Whether the address is on a connected subnet is
// for the kernel to say when the route is made.
func (t *Table) NextHop(_ context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	addr := node.Address(family)
	switch {
	case !addr.IsValid():
		return "", vpc.Errorf(vpc.Invalid, "node %s has no internal %v address", node.Name, family)
	case addr.IsUnspecified(), addr.IsLoopback(), addr.IsMulticast(), addr.IsLinkLocalUnicast():
		return "", vpc.Errorf(vpc.Invalid, "internal address %v of node %s cannot be a next hop: it is not a unicast address of the network", addr, node.Name)
	}
	addr = addr.WithZone("")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[addr] = node.Name
	return vpc.NextHop(addr.String()), nil
}

// nodes returns the next hops given out so far, with their nodes.
func (t *Table) nodes() map[netip.Addr]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.asked)
}

// List returns every entry of the table, of both families. The NextHop of an
// entry that is more than one plain gateway (several paths, a device, a tunnel,
// a source or a type of service to match) is empty. Owner is the Config's for
// entries of our protocol, and names the protocol of all others.
//
// The kernel shows several IPv6 gateways for one destination as one entry with
// the first one's protocol; List shows each by itself with that protocol.
func (t *Table) List(ctx context.Context) ([]vpc.Route, error) {
	var routes []vpc.Route
	err := t.do(ctx, "list routes", func(c *conn, table uint32) error {
		entries, err := c.entries(table)
		for _, e := range entries {
			routes = append(routes, t.route(e, table))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return routes, nil
}

func (t *Table) route(e entry, table uint32) vpc.Route {
	r := vpc.Route{
		Table:       tableName(table),
		Destination: e.destination,
		Blackhole:   e.gone,
		Owner:       t.config.Owner,
		ID:          e.id(),
		Text:        e.text,
	}
	if e.gateway.IsValid() {
		r.NextHop = vpc.NextHop(e.gateway.String())
	}
	if !t.ours(e) {
		name, _ := knownProtocol(int(e.protocol))
		r.Owner = "protocol " + name
	}
	return r
}

func (t *Table) ours(e entry) bool { return int(e.protocol) == t.config.Protocol }

// tableName is the id under which a table is listed: its number.
func tableName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// Limits counts the entries. A kernel table has no limit but memory.
func (t *Table) Limits(ctx context.Context) (vpc.Limits, error) {
	var limits vpc.Limits
	err := t.do(ctx, "count routes", func(c *conn, table uint32) error {
		entries, err := c.entries(table)
		limits = vpc.Limits{
			Tables:   []vpc.TableLimits{{Table: tableName(table), Used: len(entries)}},
			Families: families(),
		}
		return err
	})
	if err != nil {
		return vpc.Limits{}, err
	}
	return limits, nil
}

// tableID finds the id of the table to use, inside the namespace.
func (t *Table) tableID() (uint32, error) {
	switch {
	case t.config.VRF != "":
		link, err := netlink.LinkByName(t.config.VRF)
		if err != nil {
			return 0, fmt.Errorf("find VRF %q: %w", t.config.VRF, err)
		}
		return vrfTable(link)
	case t.config.Table != 0:
		return uint32(t.config.Table), nil
	default:
		return unix.RT_TABLE_MAIN, nil
	}
}

// vrfTable returns the table of a VRF device.
func vrfTable(link netlink.Link) (uint32, error) {
	vrf, ok := link.(*netlink.Vrf)
	if !ok {
		return 0, vpc.Errorf(vpc.Invalid, "device %q is a %s, not a VRF: make one with \"ip link add NAME type vrf table N\"", link.Attrs().Name, link.Type())
	}
	if vrf.Table == 0 {
		return 0, vpc.Errorf(vpc.Invalid, "VRF %q has no table", link.Attrs().Name)
	}
	return vrf.Table, nil
}

// Apply makes the changes one by one. A create is exclusive. A replace adds the
// new entry behind the old one and then removes exactly the old one: unlike the
// kernel's own replace, which overwrites whatever comes first with the same
// metric, that can neither leave a moment without a route nor touch a foreign
// entry. A crash between the two steps leaves two entries of ours, of which the
// next plan deletes the wrong one. A replace whose old entry is gone creates.
func (t *Table) Apply(ctx context.Context, changes []vpc.Change) []error {
	errs := make([]error, len(changes))
	next := 0
	err := t.do(ctx, "apply routes", func(c *conn, table uint32) error {
		entries, err := c.entries(table)
		if err != nil {
			return err
		}
		w := &writer{t: t, conn: c, table: table, found: byDestination(entries)}
		for ; next < len(changes); next++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			errs[next] = w.apply(changes[next])
		}
		return nil
	})
	for ; err != nil && next < len(changes); next++ {
		errs[next] = err
	}
	return errs
}
