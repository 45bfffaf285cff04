package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A member is a Node as the engine keeps it.
type member struct {
	Node
	claims  []*claim
	problem *Problem
	hops    map[vpc.Family]*hop
}

// A hop is what the cloud calls a node as the target of a route of one family.
type hop struct {
	value vpc.NextHop // empty when it is not known
	err   error       // why it is not known
	asked bool        // the cloud has answered for this machine, well or ill

	due      bool // it is to be asked, or asked again
	busy     bool // it is being asked
	attempts int  // failures in a row
	retry    time.Time
}

// A claim is one podCIDR of one node.
type claim struct {
	node *member
	dest netip.Prefix
	// rival is the claim that holds the range instead; nil when this one does.
	rival *claim
	// waits is true while it cannot be decided who holds the range, because a
	// contender's next hop is not known yet.
	waits bool
	// blocked says, by table, what foreign entry is in the way.
	blocked map[string]string
	proof   proof
	// known is since when the claim is; timed, that it has been told how long the
	// first proof took.
	known time.Time
	timed bool
}

// hop returns the next hop of the claim's node and family.
func (c *claim) hop() *hop { return c.node.hops[vpc.FamilyOf(c.dest)] }

// holds is true when the range is the claim's node's.
func (c *claim) holds() bool {
	return c.rival == nil && !c.waits && c.node.Exclusion == Included
}

// owner names the wish of a claim, for telling a repeated write from a new one.
func (c *claim) wish() string {
	return strings.Join([]string{c.node.Name, c.node.UID, string(c.hop().value)}, " ")
}

// contend decides who holds each claimed range inside root, and returns the
// claims that it looked at. A route stays with the node that has it; without a
// route the older node comes first. No other prefix contains root, so nobody
// outside is concerned.
func (e *Engine) contend(root netip.Prefix) []*claim {
	var all, rivals []*claim
	for _, claims := range e.claims.within(root) {
		for _, c := range claims {
			c.rival, c.waits = nil, false
			all = append(all, c)
			if c.node.Exclusion == Included {
				rivals = append(rivals, c)
			}
		}
	}
	if len(rivals) < 2 {
		return all
	}
	standing := map[*claim]int{}
	for _, c := range rivals {
		standing[c] = e.standing(c)
	}
	slices.SortStableFunc(rivals, func(a, b *claim) int {
		return cmp.Or(
			cmp.Compare(standing[b], standing[a]),
			a.node.Created.Compare(b.node.Created),
			strings.Compare(a.node.Name, b.node.Name),
		)
	})
	var holders []*claim
	for _, c := range rivals {
		if i := slices.IndexFunc(holders, func(h *claim) bool { return h.dest.Overlaps(c.dest) }); i >= 0 {
			c.rival = holders[i]
			e.await(holders[i], c)
			continue
		}
		holders = append(holders, c)
	}
	return all
}

// The standings of claims to one range, from none to proved.
const (
	unknown  = iota
	recorded // the ledger says that we asked for its route
	routed   // a table has a route to its node
	held     // both
)

func (e *Engine) standing(c *claim) int {
	best := unknown
	for _, table := range e.tables {
		entry, found := e.book.find(c.node.Name, table, c.dest)
		place := Place{table, c.dest}
		switch hops := entry.hops(); {
		case found && slices.ContainsFunc(hops, func(h vpc.NextHop) bool { return e.view.leadsTo(place, h) }):
			return held
		case c.hop().value != "" && e.view.leadsTo(place, c.hop().value):
			best = max(best, routed)
		case len(hops) > 0:
			best = max(best, recorded)
		}
	}
	return best
}

// await puts a decision off while a route is there that may turn out to be the
// loser's, or the winner's: without a ledger only next hops tell.
func (e *Engine) await(winner, loser *claim) {
	if e.standing(winner) > unknown || (winner.hop().asked && loser.hop().asked) {
		return
	}
	for _, r := range e.view.entries.get(loser.dest) {
		if r.Owner == e.cfg.Owner {
			winner.waits, loser.waits = true, true
		}
	}
}

// desired are the routes wanted inside root, for vpc.Plan. One without a next
// hop tells the plan to leave alone what is there.
func (e *Engine) desired(root netip.Prefix, claims []*claim) []vpc.Route {
	var wanted []vpc.Route
	held := map[netip.Prefix]bool{}
	for _, c := range claims {
		if c.holds() {
			held[c.dest] = true
			wanted = append(wanted, vpc.Route{Destination: c.dest, NextHop: c.hop().value, Node: c.node.Name})
		}
	}
	keep := func(node string, dest netip.Prefix) {
		if !held[dest] {
			held[dest] = true
			wanted = append(wanted, vpc.Route{Destination: dest, Node: node})
		}
	}
	for _, c := range claims {
		if c.waits || c.node.Exclusion == ExcludedKeep {
			keep(c.node.Name, c.dest)
		}
	}
	for dest, entries := range e.book.entries.within(root) {
		for _, entry := range entries {
			if e.keepsForProblem(entry) {
				keep(entry.Node, dest)
			}
		}
	}
	return wanted
}

// keepsForProblem is true for a route of a Node that is still the same but whose
// podCIDRs have become unreadable or have vanished: a broken input never costs
// a working route.
func (e *Engine) keepsForProblem(entry Entry) bool {
	m := e.members[entry.Node]
	return m != nil && m.problem != nil && m.UID == entry.UID && m.Exclusion != ExcludedRemove
}

// heldBy explains a claim that has to stand back.
func (c *claim) heldBy() string {
	return fmt.Sprintf("podCIDR %s of node %s overlaps %s, which node %s holds: give node %s a range of its own",
		c.dest, c.node.Name, c.rival.dest, c.rival.node.Name, c.node.Name)
}
