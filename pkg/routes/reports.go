package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// reports are what was last told to the observer.
type reports struct {
	routes    map[netip.Prefix]map[entryKey]RouteStatus
	nodes     map[string]NodeStatus
	stale     map[string]bool // nodes whose status may have changed
	conflicts map[string]vpc.Conflict
	braked    bool
}

func newReports() reports {
	return reports{
		routes:    map[netip.Prefix]map[entryKey]RouteStatus{},
		nodes:     map[string]NodeStatus{},
		stale:     map[string]bool{},
		conflicts: map[string]vpc.Conflict{},
	}
}

func (r *reports) touch(node string) { r.stale[node] = true }

func (e *Engine) observe(event Event) { e.cfg.Observer.Event(event) }

// publish tells the observer what has changed.
func (e *Engine) publish() {
	for dest := range e.touched {
		if dest.IsValid() {
			e.publishRoutes(dest, e.statusesAt(dest))
		}
	}
	clear(e.touched)
	for node := range e.reports.stale {
		e.publishNode(node)
	}
	clear(e.reports.stale)
	if e.reports.braked && !e.waitingDeletes() {
		e.reports.braked = false
	}
}

// publishRoutes tells what has changed about one destination, which is the zero
// Prefix for Nodes without one.
func (e *Engine) publishRoutes(dest netip.Prefix, current map[entryKey]RouteStatus) {
	told := e.reports.routes[dest]
	for key, status := range current {
		if was, known := told[key]; was != status {
			e.recount(was, known, status)
			e.cfg.Observer.Route(status)
			e.reports.touch(key.node)
		}
	}
	for key, status := range told {
		if _, still := current[key]; !still {
			e.stats.Routes[status.State]--
			status.State, status.Reason, status.Message, status.Actual = Gone, NodeGone, "the cloud holds it no more", ""
			e.cfg.Observer.Route(status)
			e.reports.touch(key.node)
		}
	}
	if len(current) == 0 {
		delete(e.reports.routes, dest)
		return
	}
	e.reports.routes[dest] = current
}

// recount moves a route from one state to another in the figures.
func (e *Engine) recount(was RouteStatus, known bool, is RouteStatus) {
	if known {
		e.stats.Routes[was.State]--
	}
	e.stats.Routes[is.State]++
}

// statusesAt is what is known about the routes to one destination.
func (e *Engine) statusesAt(dest netip.Prefix) map[entryKey]RouteStatus {
	current := map[entryKey]RouteStatus{}
	for _, c := range e.claims.get(dest) {
		for _, table := range e.statusTables() {
			s := e.claimStatus(c, Place{table, dest})
			current[entryKey{s.Node, Place{table, dest}}] = s
		}
	}
	for _, entry := range e.book.entries.get(dest) {
		if _, claimed := current[keyOf(entry)]; !claimed {
			current[keyOf(entry)] = e.leftoverStatus(entry.Node, entry.UID, Place{entry.Table, dest}, entry.NextHop)
		}
	}
	for place, w := range e.writesAt(dest) {
		key := entryKey{w.Route.Node, place}
		if _, told := current[key]; !told && w.Op == vpc.Delete && len(e.book.entries.get(dest)) == 0 && len(e.claims.get(dest)) == 0 {
			current[key] = e.leftoverStatus(w.Route.Node, "", place, w.Route.NextHop)
		}
	}
	return current
}

// statusTables are the tables that have a status of their own; before they are
// known there is one status without a table.
func (e *Engine) statusTables() []string {
	if len(e.tables) == 0 {
		return []string{""}
	}
	return e.tables
}

func (e *Engine) writesAt(dest netip.Prefix) map[Place]*write {
	found := map[Place]*write{}
	for _, table := range e.tables {
		if w := e.writes[Place{table, dest}]; w != nil {
			found[Place{table, dest}] = w
		}
	}
	return found
}

// claimStatus is how far the route of a claim is in one table.
func (e *Engine) claimStatus(c *claim, place Place) RouteStatus {
	s := RouteStatus{
		Node: c.node.Name, UID: c.node.UID, Table: place.Table, Destination: c.dest,
		NextHop: c.hop().value, Changed: e.lastChange[place], Proved: c.proof.proved,
	}
	if found := e.view.at(place); len(found) > 0 {
		s.Actual = found[0].NextHop
	}
	s.State, s.Reason, s.Message = e.judge(c, place)
	return s
}

// judge finds the first thing that is in the way of a claim's route.
func (e *Engine) judge(c *claim, place Place) (State, Reason, string) {
	h := c.hop()
	w := e.writes[place]
	switch {
	case c.node.Exclusion != Included:
		return Excluded, NodeExcluded, e.excludedBecause(c)
	case c.rival != nil:
		return Duplicate, PodCIDRTaken, c.heldBy()
	case !e.supports(vpc.FamilyOf(c.dest)):
		return Invalid, FamilyUnsupported, fmt.Sprintf("the cloud cannot route %s to a node: give node %s no %s podCIDR", vpc.FamilyOf(c.dest), c.node.Name, vpc.FamilyOf(c.dest))
	case h.value == "" && h.err != nil:
		return unresolvedState(h.err)
	case h.value == "" || c.waits:
		return Pending, ResolvingNextHop, fmt.Sprintf("asking the cloud for the machine of node %s", c.node.Name)
	case !e.listing.done:
		return Pending, CloudFailing, e.listingMessage()
	case c.blocked[place.Table] != "" && w == nil:
		return e.blockedState(c, place)
	case w != nil && w.Op != vpc.Delete:
		return e.waitingState(w)
	case !e.view.leadsTo(place, h.value):
		return Pending, CreatingRoute, "the route is being planned"
	}
	return e.provenState(c)
}

func (e *Engine) listingMessage() string {
	if e.listing.err != nil {
		return fmt.Sprintf("nothing is written before the route tables could be read: %v", e.listing.err)
	}
	return "reading the route tables"
}

func (e *Engine) excludedBecause(c *claim) string {
	if c.node.Exclusion == ExcludedRemove {
		return fmt.Sprintf("label %s of node %s asks for no route", ExcludeLabel, c.node.Name)
	}
	return fmt.Sprintf("label %s of node %s asks to leave it alone; its value \"remove\" would have our route deleted", ExcludeLabel, c.node.Name)
}

func (e *Engine) supports(f vpc.Family) bool {
	return len(e.limits.Families) == 0 || slices.Contains(e.limits.Families, f)
}

func unresolvedState(err error) (State, Reason, string) {
	switch vpc.ClassOf(err) {
	case vpc.NotFound:
		return Unresolved, MachineUnknown, err.Error()
	case vpc.Invalid:
		return Invalid, NodeUnfit, err.Error()
	case vpc.Denied:
		return Denied, AccessDenied, err.Error()
	}
	return Pending, ResolvingNextHop, "the cloud does not answer, trying on: " + err.Error()
}

func (e *Engine) blockedState(c *claim, place Place) (State, Reason, string) {
	if slices.ContainsFunc(e.view.at(place), func(r vpc.Route) bool { return r.Blackhole && r.NextHop == c.hop().value }) {
		return Unreachable, NextHopGone, c.blocked[place.Table]
	}
	return Conflicting, ForeignRoute, c.blocked[place.Table]
}

// waitingState is the state of a route that is still to be written.
func (e *Engine) waitingState(w *write) (State, Reason, string) {
	last := ""
	if w.err != nil {
		last = ": " + w.err.Error()
	}
	switch {
	case w.held == RouteContended:
		return Conflicting, RouteContended, fmt.Sprintf("another writer undoes our route (written %d times in %s): find it; we write again when that time has passed", rewriteLimit, rewriteWindow)
	case w.held == TableFull:
		return QuotaExceeded, TableFull, e.fullMessage(w.Route.Table) + last
	case w.held == AccessDenied:
		return Denied, AccessDenied, "the cloud denies us the change, one try a minute for all: grant the permissions that the check command names" + last
	case w.stuck:
		return Invalid, RequestRefused, "the cloud can never grant this as it is: change the node or the configuration" + last
	case w.err != nil && !w.recorded:
		return Pending, LedgerFailing, "the route could not be recorded, so the cloud was not asked; trying on" + last
	case w.err != nil && w.class == vpc.Quota:
		return QuotaExceeded, TableFull, e.fullMessage(w.Route.Table) + last
	case w.err != nil && w.class == vpc.Denied:
		return Denied, AccessDenied, "the cloud denies us the change" + last
	case w.err != nil && w.class != vpc.Throttled:
		return Pending, CloudFailing, "trying again" + last
	}
	return Pending, CreatingRoute, w.Reason
}

func (e *Engine) fullMessage(table string) string {
	for _, t := range e.limits.Tables {
		if t.Table == table && t.Max > 0 {
			return fmt.Sprintf("route table %s holds %d of at most %d entries: ask the cloud for a higher quota, or remove entries; one try a minute for all", table, t.Used, t.Max)
		}
	}
	return fmt.Sprintf("route table %s takes no more entries: ask the cloud for a higher quota, or remove entries; one try a minute for all", table)
}

// provenState is the state of a route that the cloud holds.
func (e *Engine) provenState(c *claim) (State, Reason, string) {
	switch p := c.proof; {
	case p.ok() && e.cfg.Prover == nil:
		return Verified, RouteReady, "the cloud holds the route"
	case p.ok():
		return Verified, RouteReady, fmt.Sprintf("node %s answered over the route", c.node.Name)
	case p.err != nil:
		return Unreachable, provenReason(p.err), e.unproved(c)
	}
	return Programmed, AwaitingProof, "the cloud holds the route; no packet has proved it yet"
}

// leftoverStatus is the state of a route that nobody wants any more.
func (e *Engine) leftoverStatus(node, uid string, place Place, hop vpc.NextHop) RouteStatus {
	s := RouteStatus{Node: node, UID: uid, Table: place.Table, Destination: place.Destination, NextHop: hop, State: Deleting, Reason: NotForgotten}
	found := e.view.at(place)
	if len(found) > 0 {
		s.Actual = found[0].NextHop
	}
	w := e.writes[place]
	m := e.members[node]
	switch {
	case m != nil && m.problem != nil && m.UID == uid:
		s.State, s.Reason = Invalid, m.problem.Reason
		s.Message = fmt.Sprintf("kept as it is: %v", m.problem.Err)
	case w != nil && w.held == DeletionHeld:
		s.Reason, s.Message = DeletionHeld, "no longer wanted, but a brake on deletions holds it"
	case w != nil && w.err != nil:
		s.Reason, s.Message = CloudFailing, "trying again: "+w.err.Error()
	case w != nil:
		s.Reason, s.Message = NodeGone, w.Change.Reason
	case len(found) > 0:
		s.Message = fmt.Sprintf("no longer wanted; the table holds an entry that leads to %q", s.Actual)
	default:
		s.Message = "no longer wanted, and the table holds no such route; the record goes once that is certain"
	}
	return s
}

// publishNode tells what has changed about one Node.
func (e *Engine) publishNode(name string) {
	m := e.members[name]
	e.publishProblem(name, m)
	told, known := e.reports.nodes[name]
	if m == nil {
		if known {
			delete(e.reports.nodes, name)
			e.countNode(told, NodeStatus{Verdict: Available})
			told.Gone = true
			e.cfg.Observer.Node(told)
		}
		return
	}
	if status := e.nodeStatus(m); !known || told != status {
		e.reports.nodes[name] = status
		e.countNode(told, status)
		e.cfg.Observer.Node(status)
	}
}

func (e *Engine) countNode(was, is NodeStatus) {
	if was.Verdict == Unavailable {
		e.stats.Unavailable--
	}
	if is.Verdict == Unavailable {
		e.stats.Unavailable++
	}
}

// publishProblem tells what is wrong with a Node itself, as a route without a
// destination.
func (e *Engine) publishProblem(name string, m *member) {
	key := entryKey{node: name}
	told, known := e.reports.routes[netip.Prefix{}][key]
	if m == nil || m.problem == nil || m.Exclusion != Included {
		if known {
			delete(e.reports.routes[netip.Prefix{}], key)
			told.State = Gone
			e.cfg.Observer.Route(told)
		}
		return
	}
	status := RouteStatus{Node: name, UID: m.UID, State: Invalid, Reason: m.problem.Reason, Message: m.problem.Err.Error()}
	if m.problem.Reason == NoPodCIDR {
		status.State = Pending
	}
	if status == told {
		return
	}
	if e.reports.routes[netip.Prefix{}] == nil {
		e.reports.routes[netip.Prefix{}] = map[entryKey]RouteStatus{}
	}
	e.reports.routes[netip.Prefix{}][key] = status
	e.cfg.Observer.Route(status)
}

// nodeStatus sums up a node's routes: it is available when all of them are.
func (e *Engine) nodeStatus(m *member) NodeStatus {
	s := NodeStatus{Node: m.Name, UID: m.UID, Verdict: Available, Reason: RouteReady, Message: "every podCIDR is routed"}
	if m.Exclusion != Included {
		s.Verdict, s.Reason, s.Message = Untouched, NodeExcluded, "excluded by label "+ExcludeLabel
		return s
	}
	worst := Available
	var messages []string
	if m.problem != nil {
		worst, s.Reason = Unavailable, m.problem.Reason
		messages = append(messages, m.problem.Err.Error())
	}
	for _, c := range m.claims {
		for _, r := range e.routesOf(c) {
			v := e.verdict(c, r)
			if v == Available {
				continue
			}
			if len(messages) == 0 {
				s.Reason = r.Reason
			}
			worst = worse(worst, v)
			messages = append(messages, r.Message)
		}
	}
	s.Verdict = worst
	if len(messages) > 0 {
		slices.Sort(messages)
		s.Message = strings.Join(slices.Compact(messages), "; ")
	}
	return s
}

// routesOf are the statuses of a claim's routes as last told, by table.
func (e *Engine) routesOf(c *claim) []RouteStatus {
	var found []RouteStatus
	for key, r := range e.reports.routes[c.dest] {
		if key.node == c.node.Name {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b RouteStatus) int { return cmp.Compare(a.Table, b.Table) })
	return found
}

// worse orders verdicts: one unavailable route makes the node unavailable, one
// undecided route leaves it undecided.
func worse(a, b Verdict) Verdict {
	switch {
	case a == Unavailable || b == Unavailable:
		return Unavailable
	case a == Undecided || b == Undecided:
		return Undecided
	}
	return Available
}

// verdict says what one route means for its node.
func (e *Engine) verdict(c *claim, r RouteStatus) Verdict {
	p := c.proof
	switch {
	case r.State == Verified:
		return Available
	case r.State == Unreachable && p.active && !p.proved.IsZero() && !e.cfg.ConditionFollowsProof:
		return Available // it worked, and losing the proof is told otherwise
	case p.active && p.inherited && p.fails < toleratedFails:
		return Undecided
	case c.rival == nil && c.hop().err == nil && (!e.listing.done || c.hop().value == ""):
		return Undecided // the cloud is still being asked
	}
	return Unavailable
}
