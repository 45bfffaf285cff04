package vpc

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// admit sorts the desired routes into those to be had, by destination, and the
// destinations of those refused; each refused one becomes a conflict.
func (p *planner) admit(desired []Route) (wanted map[netip.Prefix]Route, refused map[netip.Prefix]bool) {
	wanted, refused = map[netip.Prefix]Route{}, map[netip.Prefix]bool{}
	refuse := func(r Route, reason string) {
		p.conflict(r, r.Node, "%s", reason)
		refused[r.Destination.Masked()] = true
	}
	var claims []Route
	for _, r := range desired {
		if reason := p.fault(r); reason != "" {
			refuse(r, reason)
			continue
		}
		claims = append(claims, Route{Destination: r.Destination, NextHop: r.NextHop, Node: r.Node, Owner: p.rules.Owner})
	}
	claims = merge(claims)
	lost := p.contest(claims)
	for i, c := range claims {
		if reason, ok := lost[i]; ok {
			refuse(c, reason)
		} else {
			wanted[c.Destination] = c
		}
	}
	return wanted, refused
}

// fault says why a desired route can never be made as it is, or "".
func (p *planner) fault(r Route) string {
	d := r.Destination
	switch {
	case !d.IsValid():
		return fmt.Sprintf("node %s has no valid podCIDR, for example 10.244.1.0/24", r.Node)
	case d.Addr().Is4In6():
		return fmt.Sprintf("podCIDR %s of node %s is an IPv4 range written as IPv6: write it as IPv4, for example 10.244.1.0/24", d, r.Node)
	case d != d.Masked():
		return fmt.Sprintf("podCIDR %s of node %s has host bits set: the range is %s", d, r.Node, d.Masked())
	case !p.inRanges(d):
		return fmt.Sprintf("podCIDR %s of node %s lies outside the cluster CIDRs %v: correct the node or the cluster CIDRs", d, r.Node, p.rules.Ranges)
	case r.NextHop == "":
		return fmt.Sprintf("the next hop of node %s is not known, so nothing is made for %s and what is there stays", r.Node, d)
	case len(p.tables) == 0:
		return fmt.Sprintf("no route table is managed, so node %s has no place for %s: name a table", r.Node, d)
	}
	return ""
}

// merge sorts claims and drops those that ask for the same as another.
func merge(claims []Route) []Route {
	slices.SortFunc(claims, compareRoutes)
	return slices.CompactFunc(claims, func(a, b Route) bool {
		return a.Destination == b.Destination && a.NextHop == b.NextHop
	})
}

// contest finds the claims that lose against another and why, by their index.
func (p *planner) contest(claims []Route) (lost map[int]string) {
	lost = map[int]string{}
	byDestination := map[netip.Prefix][]int{}
	var lengths [129]bool // prefix lengths in use
	for i, c := range claims {
		byDestination[c.Destination] = append(byDestination[c.Destination], i)
		lengths[c.Destination.Bits()] = true
	}
	for i, c := range claims {
		for bits := c.Destination.Bits(); bits >= 0; bits-- {
			if !lengths[bits] {
				continue
			}
			for _, j := range byDestination[netip.PrefixFrom(c.Destination.Addr(), bits).Masked()] {
				if i != j && claims[j].NextHop != c.NextHop {
					p.judge(claims, i, j, lost)
				}
			}
		}
	}
	return lost
}

// judge lets one or both of two rival claims lose; wide's destination equals or
// contains narrow's.
func (p *planner) judge(claims []Route, narrow, wide int, lost map[int]string) {
	n, w := claims[narrow], claims[wide]
	lose := func(i int, to Route, why string) {
		lost[i] = cmp.Or(lost[i], fmt.Sprintf("podCIDR %s of node %s overlaps %s of node %s, which %s: give node %s a range of its own",
			claims[i].Destination, claims[i].Node, to.Destination, to.Node, why, claims[i].Node))
	}
	switch nHeld, wHeld := p.held(n), p.held(w); {
	case nHeld && !wHeld:
		lose(wide, n, "has its route already")
	case wHeld && !nHeld:
		lose(narrow, w, "has its route already")
	case nHeld && wHeld:
		lose(narrow, w, "has a route too")
		lose(wide, n, "has a route too")
	case n.Destination == w.Destination:
		lose(narrow, w, "claims it as well")
		lose(wide, n, "claims it as well")
	default:
		lose(wide, n, "is the narrower claim")
	}
}

// held is true when some table has a route of ours that does what is claimed.
func (p *planner) held(claim Route) bool {
	return slices.ContainsFunc(p.tables, func(table string) bool {
		return slices.ContainsFunc(p.ours[place{table, claim.Destination}], func(r Route) bool {
			return r.NextHop == claim.NextHop
		})
	})
}
