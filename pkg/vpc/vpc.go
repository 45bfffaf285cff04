// Package vpc says what a VPC route table is, which changes bring one to a
// desired state (a pure function), and what the errors of any cloud mean.
//
// It knows no cloud, no Kubernetes and no clock: it must not import an SDK,
// k8s.io or another package of this module, must not log, and must not read
// flags or the environment. One cloud's table lives in pkg/vpc/CLOUD.
package vpc

import (
	"context"
	"net/netip"
)

// A NextHop is where a route sends packets: an instance, a network interface or
// an address, spelled as the cloud names it. It is opaque outside the cloud's
// own package and compared only for equality.
type NextHop string

// A Family is an IP address family: IPv4 or IPv6.
type Family int

// The two address families. Their values are the IP version numbers.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of a prefix; an IPv4-mapped IPv6 prefix is IPv6.
func FamilyOf(p netip.Prefix) Family {
	if p.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// A Route is one entry of a route table, as wanted or as found.
type Route struct {
	// Table is the route table's id as the cloud names it, for example
	// "rtb-0a1b2c3d". It is never empty in what List returns.
	Table string
	// Destination is the range of the packets the route applies to. It is the
	// zero Prefix when the entry's destination is not one valid range (a
	// managed prefix list, host bits set); Text then holds it as found.
	Destination netip.Prefix
	// NextHop is where the packets go. It is empty when the cloud names none
	// that we could have set (a local route, a peering, an unknown kind).
	NextHop NextHop
	// Blackhole is true when the cloud says that the next hop is gone.
	Blackhole bool
	// Dropped says why the cloud drops the packets although the next hop is
	// there, for example "source/destination check of eni-1 is on"; empty when it
	// does not. It is set only where a Replace by the same next hop helps.
	Dropped string
	// Owner is the owner's mark read back from the cloud, and "" on clouds that
	// cannot mark a route or for an unmarked one.
	Owner string
	// Node is the name of the node the route is for; set in desired routes, and
	// in found ones only where the cloud's mark carries it.
	Node string
	// ID is the cloud's own handle of the entry, where it has one.
	ID string
	// Text is the destination as the cloud spells it, set only when Destination
	// could not be read from it.
	Text string
}

// A Node is the part of a cluster's node that a route table may look at.
type Node struct {
	// Name is the Kubernetes Node's name. It is for messages: it is never
	// trusted to find a machine.
	Name string
	// UID is the Kubernetes Node's UID.
	UID string
	// ProviderID is spec.providerID, for example "aws:///eu-west-1a/i-0a1b2c3d".
	ProviderID string
	// Addresses are the node's internal addresses, in the order of the Node.
	Addresses []netip.Addr
}

// Address returns the node's first internal address of a family, or the zero
// Addr when it has none.
func (n Node) Address(f Family) netip.Addr {
	for _, a := range n.Addresses {
		if a.Unmap().Is4() == (f == IPv4) {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}

// A RouteTable is one or more route tables of one VPC that one installation
// writes to. Implementations are safe for concurrent use, give every call to
// the cloud a deadline, and return errors whose class ClassOf can tell.
type RouteTable interface {
	// NextHop says how this cloud names the node as the target of a route of a
	// family. An error of class NotFound means no machine fits the node, Invalid
	// that the node lacks what is needed (its message says what); both concern
	// this node alone.
	NextHop(ctx context.Context, node Node, family Family) (NextHop, error)

	// List returns every entry of every managed table, ours or not, odd ones
	// included. An entry it cannot understand is returned with Text set, never
	// left out and never an error.
	List(ctx context.Context) ([]Route, error)

	// Apply makes the changes, batched as the cloud allows, and returns one
	// answer per change, in their order; nil means the cloud holds the wanted
	// state. A create that finds the destination taken is an error of class
	// Exists unless the entry was read back and is the wanted one. A delete of
	// what is gone is nil. One failed change never stops the others.
	Apply(ctx context.Context, changes []Change) []error

	// Limits says how full each managed table is and which families it takes.
	Limits(ctx context.Context) (Limits, error)

	// Preflight looks for what would keep routes from working: permissions,
	// subnets attached to other tables, overlapping ranges. It writes nothing.
	Preflight(ctx context.Context) []Finding
}

// Limits describes the managed tables.
type Limits struct {
	// Tables are the managed tables; each desired route is wanted in every one.
	Tables []TableLimits
	// Families are the address families the cloud can route to a node.
	Families []Family
	// Batch is how many changes one write call to the cloud carries at most; 0
	// means 1. Apply takes any number; a caller that counts calls needs to know.
	Batch int
}

// TableLimits says how full one table is.
type TableLimits struct {
	// Table is the table's id.
	Table string
	// Used is the number of entries that count against Max.
	Used int
	// Max is the largest number of entries, and 0 when the table has no limit or
	// the cloud does not tell.
	Max int
}

// A Severity says how bad a Finding is.
type Severity string

// The severities of a Finding, worst first.
const (
	SeverityError   Severity = "error"   // routes will not work
	SeverityWarning Severity = "warning" // something will fail later or elsewhere
	SeverityInfo    Severity = "info"    // worth knowing
)

// A Finding is one thing a check found out.
type Finding struct {
	Severity Severity `json:"severity"`
	// Object is what the finding is about, for example "subnet subnet-1".
	Object string `json:"object"`
	// Message says what is the matter.
	Message string `json:"message"`
	// Fix says what to do about it; empty for SeverityInfo.
	Fix string `json:"fix,omitempty"`
	// Fatal is true for what makes routes do harm, a cluster CIDR that overlaps
	// the range of the VPC or of a subnet: the controller refuses to start.
	Fatal bool `json:"fatal,omitempty"`
}

// An Op is what a Change does to the table.
type Op string

// The three changes a route table knows.
const (
	Create  Op = "create"
	Replace Op = "replace"
	Delete  Op = "delete"
)

// A Change is one write to one table.
type Change struct {
	Op Op
	// Route is the entry wanted (Create, Replace) or the one to remove (Delete,
	// with the ID under which it was listed).
	Route Route
	// Old is the entry that a Replace changes, as it was listed.
	Old Route
	// Reason says in words why the change is needed.
	Reason string
}
