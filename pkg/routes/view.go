package routes

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Place is one destination in one table: what a write concerns.
type Place struct {
	Table       string
	Destination netip.Prefix
}

func placeOf(r vpc.Route) Place { return Place{r.Table, r.Destination} }

// A view is what the tables hold, as far as is known: the last full list and
// the writes that the cloud accepted since.
type view struct {
	entries prefixMap[[]vpc.Route]
	odd     []vpc.Route // found, without a destination that can be compared
	recent  map[Place]recentWrite
}

// A recentWrite is a write that a list may not show yet. Clouds acknowledge
// writes before every reader sees them.
type recentWrite struct {
	at            time.Time
	before, after []vpc.Route
}

// at returns what one place holds.
func (v *view) at(p Place) []vpc.Route {
	var found []vpc.Route
	for _, r := range v.entries.get(p.Destination) {
		if r.Table == p.Table {
			found = append(found, r)
		}
	}
	return found
}

// put replaces what one place holds.
func (v *view) put(p Place, routes []vpc.Route) {
	rest := slices.DeleteFunc(slices.Clone(v.entries.get(p.Destination)), func(r vpc.Route) bool { return r.Table == p.Table })
	rest = append(rest, routes...)
	if len(rest) == 0 {
		v.entries.delete(p.Destination)
		return
	}
	v.entries.set(p.Destination, rest)
}

// apply notes a change that the cloud accepted.
func (v *view) apply(c vpc.Change, now time.Time) {
	p := placeOf(c.Route)
	before := v.at(p)
	after := slices.Clone(before)
	remove := func(gone vpc.Route) {
		after = slices.DeleteFunc(after, func(r vpc.Route) bool { return r.NextHop == gone.NextHop && r.ID == gone.ID })
	}
	switch c.Op {
	case vpc.Delete:
		remove(c.Route)
	case vpc.Replace:
		remove(c.Old)
		after = append(after, c.Route)
	case vpc.Create:
		after = append(after, c.Route)
	}
	v.put(p, after)
	if v.recent == nil {
		v.recent = map[Place]recentWrite{}
	}
	v.recent[p] = recentWrite{now, before, after}
}

// replace takes a full list. Where the list still shows what was there before
// a recent write, the write is believed; masked is true when that happened, and
// another list is then needed once the writes are older than window.
func (v *view) replace(list []vpc.Route, now time.Time, window time.Duration) (masked bool) {
	v.entries, v.odd = prefixMap[[]vpc.Route]{}, nil
	for _, r := range list {
		if !r.Destination.IsValid() {
			v.odd = append(v.odd, r)
			continue
		}
		v.entries.set(r.Destination, append(v.entries.get(r.Destination), r))
	}
	for p, w := range v.recent {
		if now.Sub(w.at) >= window {
			delete(v.recent, p)
			continue
		}
		if found := v.at(p); sameHops(found, w.before) && !sameHops(found, w.after) {
			v.put(p, w.after)
			masked = true
		}
	}
	return masked
}

// sameHops is true when two lists of one place send packets to the same hops.
func sameHops(a, b []vpc.Route) bool {
	return slices.Equal(sortedHops(a), sortedHops(b))
}

func sortedHops(routes []vpc.Route) []vpc.NextHop {
	hops := make([]vpc.NextHop, len(routes))
	for i, r := range routes {
		hops[i] = r.NextHop
	}
	slices.Sort(hops)
	return hops
}

// leadsTo is true when a place has a live entry, whoever's, to a next hop.
func (v *view) leadsTo(p Place, hop vpc.NextHop) bool {
	return slices.ContainsFunc(v.entries.get(p.Destination), func(r vpc.Route) bool {
		return r.Table == p.Table && r.NextHop == hop && !r.Blackhole
	})
}
