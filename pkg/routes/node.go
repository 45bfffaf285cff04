package routes

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Node is what the controller needs to know of a Kubernetes Node.
type Node struct {
	vpc.Node
	// PodCIDRs are spec.podCIDRs as they are written there; no more than one of
	// each family can be routed.
	PodCIDRs []string
	// Created is metadata.creationTimestamp. Of two Nodes that claim one range,
	// neither of which has a route, the older gets it.
	Created time.Time
	// Exclusion says whether the controller leaves the node alone.
	Exclusion Exclusion
}

// An Exclusion says whether the controller leaves a node alone.
type Exclusion int

// The values of an Exclusion.
const (
	Included       Exclusion = iota
	ExcludedKeep             // no route is made, and none is deleted
	ExcludedRemove           // no route is made, and ours is deleted
)

// ExcludeLabel is the label of a Node that the controller is to leave alone.
const ExcludeLabel = "vpcroute.io/exclude"

// ParseExclusion reads ExcludeLabel from the labels of a Node: "remove" has our
// route deleted, "false" is the same as no label, and every other value, ""
// and "true" included, leaves things as they are.
func ParseExclusion(labels map[string]string) Exclusion {
	value, found := labels[ExcludeLabel]
	switch {
	case !found, value == "false":
		return Included
	case value == "remove":
		return ExcludedRemove
	default:
		return ExcludedKeep
	}
}

// FromObject takes from a Kubernetes Node what the controller needs. The error
// names the parts that cannot be read and are left out; the Node can be used
// all the same.
func FromObject(o *corev1.Node) (Node, error) {
	n := Node{
		Node:      vpc.Node{Name: o.Name, UID: string(o.UID), ProviderID: o.Spec.ProviderID},
		PodCIDRs:  o.Spec.PodCIDRs,
		Created:   o.CreationTimestamp.Time,
		Exclusion: ParseExclusion(o.Labels),
	}
	if len(n.PodCIDRs) == 0 && o.Spec.PodCIDR != "" {
		n.PodCIDRs = []string{o.Spec.PodCIDR}
	}
	var errs []error
	for i, a := range o.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		addr, err := netip.ParseAddr(a.Address)
		if err != nil {
			errs = append(errs, fmt.Errorf("status.addresses[%d].address of node %s: %q is not an address, for example 172.31.0.11", i, o.Name, a.Address))
			continue
		}
		n.Addresses = append(n.Addresses, addr)
	}
	return n, errors.Join(errs...)
}

// Equal is true when the controller has no reason to tell two versions of a
// Node apart; most updates of a Node are heartbeats.
func (n Node) Equal(o Node) bool {
	return n.sameMachine(o) && n.Created.Equal(o.Created) &&
		n.Exclusion == o.Exclusion && slices.Equal(n.PodCIDRs, o.PodCIDRs)
}

// sameMachine is true when the cloud's name of the node cannot have changed.
func (n Node) sameMachine(o Node) bool {
	return n.Name == o.Name && n.UID == o.UID && n.ProviderID == o.ProviderID &&
		slices.Equal(n.Addresses, o.Addresses)
}

// A Problem is what keeps a Node from being routed as it is.
type Problem struct {
	Reason Reason
	// Err says what is wrong, with the field, the value seen and an example.
	Err error
}

// claims reads a Node's podCIDRs: those that can be routed, and what is wrong
// with the others, all of it together.
func (n Node) claims(ranges []netip.Prefix) ([]netip.Prefix, *Problem) {
	if len(n.PodCIDRs) == 0 {
		return nil, &Problem{NoPodCIDR, fmt.Errorf("spec.podCIDRs of node %s is empty: waiting for a podCIDR, for example %s", n.Name, example(ranges))}
	}
	var claims []netip.Prefix
	var errs []error
	reason := Reason("")
	for i, text := range n.PodCIDRs {
		p, why, err := parsePodCIDR(text, ranges)
		if err == nil && slices.ContainsFunc(claims, func(c netip.Prefix) bool { return vpc.FamilyOf(c) == vpc.FamilyOf(p) }) {
			why, err = InvalidPodCIDR, fmt.Errorf("is a second %s range: a node can have one of each family", vpc.FamilyOf(p))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.podCIDRs[%d] of node %s: %q %w", i, n.Name, text, err))
			if reason == "" {
				reason = why
			}
			continue
		}
		claims = append(claims, p)
	}
	if len(errs) > 0 {
		return claims, &Problem{reason, errors.Join(errs...)}
	}
	return claims, nil
}

func parsePodCIDR(text string, ranges []netip.Prefix) (netip.Prefix, Reason, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, InvalidPodCIDR, fmt.Errorf("is not a range, for example %s", example(ranges))
	case p.Addr().Is4In6():
		return p, InvalidPodCIDR, fmt.Errorf("is an IPv4 range written as IPv6: write it as IPv4, for example %s", example(ranges))
	case p != p.Masked():
		return p, InvalidPodCIDR, fmt.Errorf("has host bits set: the range is %s", p.Masked())
	case !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return contains(r, p) }):
		return p, PodCIDROutOfRange, fmt.Errorf("lies outside the cluster CIDRs %v: correct the node or the cluster CIDRs", ranges)
	}
	return p, "", nil
}

// example is a podCIDR as a node of this cluster could have it.
func example(ranges []netip.Prefix) string {
	bits := map[vpc.Family]int{vpc.IPv4: 24, vpc.IPv6: 64}
	for _, r := range ranges {
		if want := bits[vpc.FamilyOf(r)]; r.Bits() <= want {
			return netip.PrefixFrom(r.Addr(), want).String()
		}
	}
	return "10.244.1.0/24"
}
