package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A VPCRoute records the route to one node's podCIDR in one route table, and
// says how far it is.
//
// It is a write-ahead ledger: it is created before the cloud is first asked for
// the route and deleted after the cloud has forgotten the route. On clouds that
// cannot mark a route it is the proof that the route is ours. The proof lies in
// the spec alone, because backups do not restore a status. It has no owner
// reference to its Node, which would take the proof away too early, and no
// finalizer: one that was deleted by hand is made again, and the route stays.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=vpcroutes,singular=vpcroute,shortName=vpcr,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Destination",type=string,JSONPath=`.spec.destination`
// +kubebuilder:printcolumn:name="Next Hop",type=string,JSONPath=`.spec.nextHop`
// +kubebuilder:printcolumn:name="Table",type=string,JSONPath=`.spec.table`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.table`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
type VPCRoute struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the route as this installation wants it, and the proof that it is
	// ours.
	// +required
	Spec VPCRouteSpec `json:"spec"`
	// Status is what is known about the route.
	// +optional
	Status VPCRouteStatus `json:"status,omitzero"`
}

// VPCRouteSpec is the route as wanted.
//
// +kubebuilder:validation:XValidation:rule="has(self.destination) == has(self.table)",message="destination and table must be set together: a route is one destination in one table"
// +kubebuilder:validation:XValidation:rule="has(self.destination) || !(has(self.nextHop) || has(self.previousNextHops))",message="nextHop and previousNextHops need a destination"
// +kubebuilder:validation:XValidation:rule="has(self.destination) == has(oldSelf.destination)",message="destination and table can neither be added nor removed: create another VPCRoute"
type VPCRouteSpec struct {
	// NodeName is the name of the Node whose pods the route leads to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName cannot change: create another VPCRoute"
	NodeName string `json:"nodeName"`

	// NodeUID is the UID of that Node. It changes when the Node is created again
	// under its name with the same podCIDR.
	// +required
	// +kubebuilder:validation:XValidation:rule="self != ''",message="nodeUID must not be empty"
	NodeUID types.UID `json:"nodeUID"`

	// Destination is the podCIDR in its canonical form, for example
	// "10.244.1.0/24" or "fd00:10:244:1::/64". It is absent when the Node has no
	// podCIDR that can be routed; the status then says why.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="destination must be a range in canonical form without host bits, for example 10.244.1.0/24 or fd00:10:244:1::/64"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="destination cannot change: create another VPCRoute"
	Destination string `json:"destination,omitempty"`

	// Table is the id of the route table as the cloud names it, for example
	// "rtb-0a1b2c3d". It is absent when Destination is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="table cannot change: create another VPCRoute"
	Table string `json:"table,omitempty"`

	// NextHop is the instance, interface or address that the route leads to, as
	// the cloud names it. It is absent while no machine is known for the Node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	NextHop string `json:"nextHop,omitempty"`

	// PreviousNextHops are next hops that were asked for earlier and that the
	// cloud may still hold: a route to one of them is ours too. A next hop moves
	// here in the same write that replaces it, and leaves when the cloud has
	// been seen to hold the current one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	PreviousNextHops []string `json:"previousNextHops,omitempty"`
}

// A State says in one word how far a route is.
//
// +kubebuilder:validation:Enum=Pending;Programmed;Verified;Unreachable;Conflict;Duplicate;QuotaExceeded;Denied;Invalid;Unresolved;Excluded;Deleting
type State string

// The states of a route. Reason and message say more.
const (
	// StatePending: wanted, and the cloud has not yet said yes.
	StatePending State = "Pending"
	// StateProgrammed: the cloud holds the route; no packet has proved it yet.
	StateProgrammed State = "Programmed"
	// StateVerified: a packet took the route and the right node answered.
	StateVerified State = "Verified"
	// StateUnreachable: the cloud holds the route, but a packet over it met
	// silence or another node.
	StateUnreachable State = "Unreachable"
	// StateConflict: the table holds a foreign route for the destination, or
	// another writer keeps changing ours; nothing is written.
	StateConflict State = "Conflict"
	// StateDuplicate: another Node holds the same or an overlapping podCIDR.
	StateDuplicate State = "Duplicate"
	// StateQuotaExceeded: the table or the account takes no more routes.
	StateQuotaExceeded State = "QuotaExceeded"
	// StateDenied: the credentials do not allow the change.
	StateDenied State = "Denied"
	// StateInvalid: the Node or its podCIDR cannot be routed as it is.
	StateInvalid State = "Invalid"
	// StateUnresolved: the cloud knows no machine that fits the Node.
	StateUnresolved State = "Unresolved"
	// StateExcluded: the Node carries the exclusion label.
	StateExcluded State = "Excluded"
	// StateDeleting: the route is no longer wanted, and the cloud has not yet
	// forgotten it.
	StateDeleting State = "Deleting"
)

// States returns every state, in the order of their declaration.
func States() []State {
	return []State{
		StatePending, StateProgrammed, StateVerified, StateUnreachable,
		StateConflict, StateDuplicate, StateQuotaExceeded, StateDenied,
		StateInvalid, StateUnresolved, StateExcluded, StateDeleting,
	}
}

// The types of a VPCRoute's conditions.
const (
	// ConditionProgrammed is True while the cloud holds the route as wanted.
	ConditionProgrammed = "Programmed"
	// ConditionVerified is True while a packet's way over the route is proved.
	ConditionVerified = "Verified"
)

// VPCRouteStatus is what is known about a route.
type VPCRouteStatus struct {
	// ObservedGeneration is the metadata.generation of the spec that the rest of
	// the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// State says in one word how far the route is.
	// +optional
	State State `json:"state,omitempty"`

	// Reason is the cause of the state as one word in CamelCase, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message says in words what is the matter and what to do about it.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// Table is the table in which the route was last seen; absent when the cloud
	// holds no such route.
	// +optional
	Table string `json:"table,omitempty"`

	// NextHop is the next hop that the cloud was last seen to hold for the
	// destination; absent when the cloud holds no such route.
	// +optional
	NextHop string `json:"nextHop,omitempty"`

	// LastChangeTime is when the cloud last accepted a change to the route.
	// +optional
	LastChangeTime *metav1.Time `json:"lastChangeTime,omitempty"`

	// LastProofTime is when a packet last proved the route.
	// +optional
	LastProofTime *metav1.Time `json:"lastProofTime,omitempty"`

	// Conditions are Programmed and Verified.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// VPCRouteList is a list of VPCRoutes.
//
// +kubebuilder:object:root=true
type VPCRouteList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VPCRoute `json:"items"`
}

// maxName is the longest name of an object (RFC 1123 subdomain as Kubernetes
// checks it).
const maxName = 253

// Name returns the name of the VPCRoute for a node, table and destination: the
// node's name and a hash of all three, for example "node-1-5d41402abc". It is
// the same for the same three, and differs when one of them does, so that the
// routes of a Node that comes back with another podCIDR stand side by side.
func Name(node, table, destination string) string {
	sum := sha256.Sum256([]byte(node + "\x00" + table + "\x00" + destination))
	suffix := "-" + hex.EncodeToString(sum[:5])
	if room := maxName - len(suffix); len(node) > room {
		node = strings.TrimRight(node[:room], ".-")
	}
	return node + suffix
}
