package routes

import (
	"net/netip"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A State says in one word how far a route is. The words are those of the
// VPCRoute resource.
type State string

// The states of a route.
const (
	Pending       State = "Pending"       // wanted, and the cloud has not yet said yes
	Programmed    State = "Programmed"    // the cloud holds it; no packet has proved it yet
	Verified      State = "Verified"      // it counts: proved as the configuration asks
	Unreachable   State = "Unreachable"   // the cloud holds it, but a packet over it met silence or another node
	Conflicting   State = "Conflict"      // a foreign entry or another writer is in the way
	Duplicate     State = "Duplicate"     // another Node holds the same or an overlapping podCIDR
	QuotaExceeded State = "QuotaExceeded" // the table takes no more
	Denied        State = "Denied"        // the credentials do not allow it
	Invalid       State = "Invalid"       // the Node or its podCIDR cannot be routed as it is
	Unresolved    State = "Unresolved"    // the cloud knows no machine that fits the Node
	Excluded      State = "Excluded"      // the Node carries the exclusion label
	Deleting      State = "Deleting"      // no longer wanted, and not yet gone
	Gone          State = "Gone"          // reported once, when nothing is left of it
)

// A Reason is the cause of a state as one word in CamelCase, for programs.
type Reason string

// The reasons.
const (
	NoPodCIDR         Reason = "NoPodCIDR"         // the Node has no podCIDR yet
	InvalidPodCIDR    Reason = "InvalidPodCIDR"    // a podCIDR is not one range
	PodCIDROutOfRange Reason = "PodCIDROutOfRange" // a podCIDR lies outside the cluster CIDRs
	PodCIDRTaken      Reason = "PodCIDRTaken"      // another Node holds the range
	FamilyUnsupported Reason = "FamilyUnsupported" // the cloud cannot route this family to a node
	MachineUnknown    Reason = "MachineUnknown"    // the cloud has no machine for the Node
	NodeUnfit         Reason = "NodeUnfit"         // the Node or its machine lacks what a next hop needs
	ResolvingNextHop  Reason = "ResolvingNextHop"  // the cloud is being asked for the machine
	CreatingRoute     Reason = "CreatingRoute"     // the cloud is being asked for the route
	ForeignRoute      Reason = "ForeignRoute"      // the table holds another's entry
	RouteContended    Reason = "RouteContended"    // another writer keeps changing it
	TableFull         Reason = "TableFull"         // the quota of the table or the account is used up
	AccessDenied      Reason = "AccessDenied"      // permissions or credentials
	RequestRefused    Reason = "RequestRefused"    // the cloud can never grant this request
	CloudFailing      Reason = "CloudFailing"      // the cloud answers with errors; the controller goes on trying
	LedgerFailing     Reason = "LedgerFailing"     // the route could not be recorded, so the cloud was not asked
	NextHopGone       Reason = "NextHopGone"       // the cloud says the route leads nowhere
	AwaitingProof     Reason = "AwaitingProof"     // the cloud says yes, no packet has said so yet
	ProbeSilent       Reason = "ProbeSilent"       // no answer over the route
	ProbeWrongNode    Reason = "ProbeWrongNode"    // another node answered over the route
	RouteReady        Reason = "RouteReady"        // it works
	NodeExcluded      Reason = "NodeExcluded"      // the exclusion label
	NodeGone          Reason = "NodeGone"          // nobody claims the range any more
	DeletionHeld      Reason = "DeletionHeld"      // a brake keeps the route
	NotForgotten      Reason = "NotForgotten"      // the cloud still lists it
)

// Known is true for the reasons that this package gives.
func (r Reason) Known() bool {
	switch r {
	case NoPodCIDR, InvalidPodCIDR, PodCIDROutOfRange, PodCIDRTaken, FamilyUnsupported, MachineUnknown, NodeUnfit,
		ResolvingNextHop, CreatingRoute, ForeignRoute, RouteContended, TableFull, AccessDenied, RequestRefused,
		CloudFailing, LedgerFailing, NextHopGone, AwaitingProof, ProbeSilent, ProbeWrongNode, RouteReady,
		NodeExcluded, NodeGone, DeletionHeld, NotForgotten:
		return true
	}
	return false
}

// A RouteStatus is what is known about the route to one node's podCIDR in one
// table. It is comparable, and reported whenever it has changed.
type RouteStatus struct {
	Node, UID string
	// Table and Destination are empty in the status of a Node that has no range
	// to be routed.
	Table       string
	Destination netip.Prefix
	// NextHop is the one wanted.
	NextHop vpc.NextHop
	// Actual is the next hop that the table was last seen to hold, and empty
	// when it holds no route that could be ours.
	Actual vpc.NextHop

	State   State
	Reason  Reason
	Message string

	// Changed is when the cloud last accepted a change by this process.
	Changed time.Time
	// Proved is when a packet last proved the route to this process.
	Proved time.Time
}

// A Verdict says whether pods on a node can be reached.
type Verdict int

// The verdicts.
const (
	// Undecided: nothing new is known since the controller started, and the
	// route is in place. A verdict that somebody already gave stands.
	Undecided Verdict = iota
	Unavailable
	Available
	// Untouched: the node is not the controller's business.
	Untouched
)

// String returns the verdict in one word.
func (v Verdict) String() string {
	return [...]string{"Undecided", "Unavailable", "Available", "Untouched"}[v]
}

// A NodeStatus is the sum of a node's routes. It is comparable, and reported
// whenever it has changed.
type NodeStatus struct {
	Node, UID string
	Verdict   Verdict
	Reason    Reason
	Message   string
	// Gone is true in the last report of a Node.
	Gone bool
}

// An Event is something worth telling that is not the state of one route.
type Event struct {
	Kind EventKind
	// Node is the node it concerns; empty when it concerns a table or all.
	Node string
	// Table and Destination are set when it concerns one route.
	Table       string
	Destination netip.Prefix
	Message     string
}

// An EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	ConflictFound    EventKind = "ConflictFound"    // a foreign entry inside our ranges, or another writer
	ConflictSolved   EventKind = "ConflictSolved"   // it is gone
	DriftRepaired    EventKind = "DriftRepaired"    // somebody changed or removed our route
	DeletionsHeld    EventKind = "DeletionsHeld"    // a brake is on
	TableFilling     EventKind = "TableFilling"     // a table is over 80 % full
	Throttling       EventKind = "Throttling"       // the cloud asked us to slow down
	ListFailed       EventKind = "ListFailed"       // the table could not be read
	ListWorks        EventKind = "ListWorks"        // it can be read again
	ProofLost        EventKind = "ProofLost"        // a route that worked does not answer any more
	ProofRegained    EventKind = "ProofRegained"    // it does again
	RouteAdopted     EventKind = "RouteAdopted"     // a correct route of ours, unknown to the ledger, is recorded
	RangeRewritten   EventKind = "RangeRewritten"   // another writer undoes our changes; we stopped
	LedgerFailed     EventKind = "LedgerFailed"     // a record could not be written
	LedgerUnreadable EventKind = "LedgerUnreadable" // nothing can be done until the ledger can be read

	PodCIDRsExhausted EventKind = "PodCIDRsExhausted" // a Node needs a podCIDR and none is left
	AllocationStopped EventKind = "AllocationStopped" // something else allocates podCIDRs too
)

// An Observer is told what happens, by the engine's one goroutine: it must not
// block and must not call the engine.
type Observer interface {
	Route(RouteStatus)
	Node(NodeStatus)
	Event(Event)
}
