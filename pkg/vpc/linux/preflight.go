package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// Preflight looks for what would keep the table's routes from working: no
// permission, forwarding off, no rule that leads to the table, cluster CIDRs
// that overlap a connected subnet or a foreign route, next hops that are on no
// connected subnet. Next hops are those of our routes and those that NextHop
// gave out.
func (t *Table) Preflight(ctx context.Context) []vpc.Finding {
	var findings []vpc.Finding
	err := t.do(ctx, "check", func(c *conn, table uint32) error {
		entries, err := c.entries(table)
		if err != nil {
			return err
		}
		subnets, err := c.subnets()
		if err != nil {
			return err
		}
		routed, err := c.ruled(table, t.config.VRF != "")
		if err != nil {
			return err
		}
		findings = slices.Concat(
			checkPermission(c),
			t.checkForwarding(),
			t.checkRules(table, routed),
			t.checkRanges(table, entries, subnets),
			t.checkNextHops(entries),
		)
		return nil
	})
	if err != nil {
		findings = append(findings, vpc.Finding{
			Severity: vpc.SeverityError, Object: "table", Message: err.Error(),
			Fix: "check that the namespace, the VRF and the table exist and that this process may enter the namespace",
		})
	}
	return findings
}

// checkPermission sends the kernel a deletion of no family, which it can only
// refuse: for lack of permission (CAP_NET_ADMIN over the namespace) before lack
// of sense (rtnetlink_rcv_msg in net/core/rtnetlink.c).
func checkPermission(c *conn) []vpc.Finding {
	if err := c.send(unix.RTM_DELROUTE, 0, nl.NewRtGenMsg()); !errors.Is(err, unix.EPERM) {
		return nil
	}
	return []vpc.Finding{{
		Severity: vpc.SeverityError, Object: "permission",
		Message: "this process may not change routes in the namespace",
		Fix:     "run it as root or with CAP_NET_ADMIN",
	}}
}

// families are those of the cluster CIDRs, or all when none are given.
func (t *Table) families() []vpc.Family {
	if len(t.config.Ranges) == 0 {
		return families()
	}
	var used []vpc.Family
	for _, r := range t.config.Ranges {
		if f := vpc.FamilyOf(r); !slices.Contains(used, f) {
			used = append(used, f)
		}
	}
	return used
}

var forwardingSettings = map[vpc.Family]string{
	vpc.IPv4: "net/ipv4/ip_forward",
	vpc.IPv6: "net/ipv6/conf/all/forwarding",
}

func (t *Table) checkForwarding() []vpc.Finding {
	var findings []vpc.Finding
	for _, family := range t.families() {
		setting := forwardingSettings[family]
		value, err := os.ReadFile("/proc/sys/" + setting)
		if err == nil && strings.TrimSpace(string(value)) != "0" {
			continue
		}
		name := strings.ReplaceAll(setting, "/", ".")
		f := vpc.Finding{
			Severity: vpc.SeverityError, Object: "setting " + name,
			Message: fmt.Sprintf("%v forwarding is off: the table's routes carry no packets", family),
			Fix:     "sysctl -w " + name + "=1",
		}
		if err != nil {
			f.Message = fmt.Sprintf("cannot read whether %v forwarding is on: %v", family, err)
			f.Fix = "check that the kernel has " + family.String() + " and that /proc/sys is mounted"
		}
		findings = append(findings, f)
	}
	return findings
}

// ruled says for which families a rule has packets looked up in the table.
func (c *conn) ruled(table uint32, vrf bool) (map[vpc.Family]bool, error) {
	ruled := map[vpc.Family]bool{}
	for _, family := range families() {
		rules, err := c.dump(unix.RTM_GETRULE, unix.RTM_NEWRULE, header(family))
		if err != nil {
			return nil, fmt.Errorf("dump %v rules: %w", family, err)
		}
		ruled[family] = slices.ContainsFunc(rules, func(m []byte) bool { return leadsTo(m, table, vrf) })
	}
	return ruled, nil
}

// leadsTo reads a rule: struct fib_rule_hdr has the layout of struct rtmsg, with
// the action in the place of the type (linux/fib_rules.h).
func leadsTo(rule []byte, table uint32, vrf bool) bool {
	if len(rule) < unix.SizeofRtMsg {
		return false
	}
	h := nl.DeserializeRtMsg(rule)
	attrs, err := parseAttributes(rule[unix.SizeofRtMsg:])
	if err != nil || h.Type != nl.FR_ACT_TO_TBL {
		return false
	}
	if vrf && attrs.has(unix.FRA_L3MDEV) {
		return true
	}
	id := attrs.number(unix.FRA_TABLE)
	return id == table || id == 0 && uint32(h.Table) == table
}

func (t *Table) checkRules(table uint32, ruled map[vpc.Family]bool) []vpc.Finding {
	var findings []vpc.Finding
	for _, family := range t.families() {
		if ruled[family] {
			continue
		}
		option := map[vpc.Family]string{vpc.IPv4: "-4", vpc.IPv6: "-6"}[family]
		findings = append(findings, vpc.Finding{
			Severity: vpc.SeverityError, Object: fmt.Sprintf("table %d", table),
			Message: fmt.Sprintf("no %v rule leads to table %d: its routes carry no packets", family, table),
			Fix:     fmt.Sprintf("ip %s rule add table %d, or use a table that is looked up, such as 254 (main)", option, table),
		})
	}
	return findings
}

// subnets returns the subnets of the namespace's own addresses.
func (c *conn) subnets() ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	for _, family := range families() {
		ask := &nl.IfAddrmsg{IfAddrmsg: unix.IfAddrmsg{Family: linuxFamily(family)}}
		messages, err := c.dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, ask)
		if err != nil {
			return nil, fmt.Errorf("dump %v addresses: %w", family, err)
		}
		for _, m := range messages {
			if s, ok := subnet(m, family); ok {
				subnets = append(subnets, s)
			}
		}
	}
	return subnets, nil
}

func subnet(m []byte, family vpc.Family) (netip.Prefix, bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return netip.Prefix{}, false
	}
	attrs, err := parseAttributes(m[unix.SizeofIfAddrmsg:])
	if err != nil {
		return netip.Prefix{}, false
	}
	addr := attrs.address(unix.IFA_ADDRESS, family)
	s := netip.PrefixFrom(addr, int(nl.DeserializeIfAddrmsg(m).Prefixlen)).Masked()
	return s, s.IsValid() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
}

// checkRanges compares the cluster CIDRs with what is there: a subnet of the
// namespace inside or around them is an error, a foreign route a warning. A
// default route overlaps everything and means nothing.
func (t *Table) checkRanges(table uint32, entries []entry, subnets []netip.Prefix) []vpc.Finding {
	var findings []vpc.Finding
	for _, r := range t.config.Ranges {
		object := "cluster CIDR " + r.String()
		for _, s := range subnets {
			if r.Overlaps(s) {
				findings = append(findings, vpc.Finding{
					Severity: vpc.SeverityError, Object: object,
					Message: fmt.Sprintf("%v overlaps the connected subnet %v", r, s),
					Fix:     "give the cluster a range that no subnet uses",
					Fatal:   true,
				})
			}
		}
		for _, e := range entries {
			d := e.destination
			if t.ours(e) || !r.Overlaps(d) || d.Bits() == 0 || slices.Contains(subnets, d) {
				continue
			}
			findings = append(findings, vpc.Finding{
				Severity: vpc.SeverityWarning, Object: object,
				Message: fmt.Sprintf("%v overlaps the route to %v in table %d, which is not ours (%s)", r, d, table, t.route(e, table).Owner),
				Fix:     "remove that route, or give the cluster a range of its own",
			})
		}
	}
	return findings
}

// checkNextHops asks the kernel whether it reaches each next hop directly.
func (t *Table) checkNextHops(entries []entry) []vpc.Finding {
	hops := t.nodes()
	for _, e := range entries {
		if t.ours(e) && e.gateway.IsValid() {
			if _, asked := hops[e.gateway]; !asked {
				hops[e.gateway] = ""
			}
		}
	}
	var findings []vpc.Finding
	for _, hop := range slices.SortedFunc(maps.Keys(hops), netip.Addr.Compare) {
		problem := t.lookUp(hop)
		if problem == "" {
			continue
		}
		object := "next hop " + hop.String()
		if node := hops[hop]; node != "" {
			object += " of node " + node
		}
		findings = append(findings, vpc.Finding{
			Severity: vpc.SeverityError, Object: object, Message: problem,
			Fix: "bring up the interface on the nodes' subnet and give it an address of that subnet",
		})
	}
	return findings
}

// lookUp says why the kernel would not take an address as a gateway, or "".
func (t *Table) lookUp(hop netip.Addr) string {
	routes, err := netlink.RouteGetWithOptions(hop.AsSlice(), &netlink.RouteGetOptions{VrfName: t.config.VRF})
	switch {
	case err != nil:
		return fmt.Sprintf("%v cannot be reached: %v", hop, err)
	case len(routes) == 0 || len(routes[0].Gw) > 0:
		return fmt.Sprintf("%v is on no connected subnet", hop)
	case routes[0].Type == unix.RTN_LOCAL:
		return fmt.Sprintf("%v is an address of this machine itself", hop)
	}
	return ""
}
