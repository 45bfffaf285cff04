package tencent

import (
	"net/netip"
	"slices"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// entangled sorts changes into groups that do not touch each other: two changes
// are in one group when an entry that one of them makes or takes away has the
// same next hop as, or overlaps, an entry of the other. Changes that have an
// error already are in no group. Order is kept, between groups and in them.
func entangled(changes []vpc.Change, errs []error) [][]int {
	type claim struct {
		destination netip.Prefix
		change      int
	}
	set := newUnion(len(changes))
	firstOf := map[vpc.NextHop]int{}
	var claims []claim
	touch := func(i int, r vpc.Route) {
		if first, ok := firstOf[r.NextHop]; ok {
			set.join(first, i)
		} else {
			firstOf[r.NextHop] = i
		}
		claims = append(claims, claim{r.Destination, i})
	}
	for i, c := range changes {
		if errs[i] != nil {
			continue
		}
		touch(i, c.Route)
		if old, ok := taken(c); ok {
			touch(i, old)
		}
	}
	// Sorted by address, then the wider first, a range follows those around it.
	slices.SortFunc(claims, func(a, b claim) int { return a.destination.Compare(b.destination) })
	var around []claim
	for _, c := range claims {
		for len(around) > 0 && !around[len(around)-1].destination.Overlaps(c.destination) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			set.join(around[len(around)-1].change, c.change)
		}
		around = append(around, c)
	}
	return set.groups(func(i int) bool { return errs[i] == nil })
}

// A union is a set of numbers, joined into groups.
type union struct{ parent []int }

func newUnion(n int) union {
	u := union{make([]int, n)}
	for i := range u.parent {
		u.parent[i] = i
	}
	return u
}

func (u union) root(i int) int {
	for u.parent[i] != i {
		u.parent[i] = u.parent[u.parent[i]]
		i = u.parent[i]
	}
	return i
}

func (u union) join(i, j int) { u.parent[u.root(i)] = u.root(j) }

// groups lists the groups in the order of their first numbers.
func (u union) groups(include func(int) bool) [][]int {
	var groups [][]int
	at := map[int]int{}
	for i := range u.parent {
		if !include(i) {
			continue
		}
		root := u.root(i)
		if _, ok := at[root]; !ok {
			at[root] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[root]] = append(groups[at[root]], i)
	}
	return groups
}
