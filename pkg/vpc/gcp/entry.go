package gcp

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// markPrefix and the cluster id make up the description of our routes.
const markPrefix = "vpcroute/"

// nameOf is the name of an owner's route. Names are unique in a project, so the
// name is the lock of a route: the same owner, network, destination and next
// hop give the same name, and each of them another one. The owner is in it as a
// hash of fixed length, never as text that another id could start with. It has
// at most 60 of the 63 characters that are allowed.
func nameOf(owner, network string, destination netip.Prefix, hop vpc.NextHop) string {
	whose := sha256.Sum256([]byte(owner + "\x00" + network))
	where := sha256.Sum256([]byte(hop))
	digits := strings.ReplaceAll(destination.Addr().String(), ".", "-")
	if destination.Addr().Is6() {
		digits = fmt.Sprintf("%x", destination.Addr().AsSlice())
	}
	return fmt.Sprintf("r-%x-%s-%d-%x", whose[:6], digits, destination.Bits(), where[:4])
}

// ownerOf reads the mark of a route: the description, if the name is the one
// that this owner gives. Either alone may have been copied or typed by hand.
func ownerOf(network string, r *compute.Route, destination netip.Prefix, hop vpc.NextHop) string {
	owner, marked := strings.CutPrefix(r.Description, markPrefix)
	if !marked || owner == "" || !destination.IsValid() || hop == "" || r.Name != nameOf(owner, network, destination, hop) {
		return ""
	}
	return owner
}

// routeOf reads a route of a network.
func routeOf(network string, r *compute.Route) vpc.Route {
	found := vpc.Route{Table: network, ID: r.Name, NextHop: hopOfRoute(r)}
	p, err := netip.ParsePrefix(r.DestRange)
	if err != nil || p != p.Masked() {
		found.Text = cmp.Or(r.DestRange, "(no destination)")
	} else {
		found.Destination = p
	}
	found.Owner = ownerOf(network, r, found.Destination, found.NextHop)
	if len(r.Tags) > 0 {
		// It holds for machines with these tags alone: not what we would make.
		found.NextHop += vpc.NextHop(" (tags " + strings.Join(r.Tags, ",") + ")")
	}
	found.Blackhole = warns(r.Warnings, isGone)
	return found
}

// hopOfRoute is the next hop of a route as hopOf spells it, and "" for those of
// other kinds (gateways, tunnels, peerings, subnets).
func hopOfRoute(r *compute.Route) vpc.NextHop {
	if r.NextHopInstance != "" {
		return vpc.NextHop(tail(r.NextHopInstance))
	}
	if a, err := netip.ParseAddr(r.NextHopIp); err == nil {
		return vpc.NextHop(a.String())
	}
	return ""
}

// entryFor is the route to ask for.
func entryFor(c Config, path string, r vpc.Route, priority int64) *compute.Route {
	entry := &compute.Route{
		Name:        nameOf(c.Owner, c.Network, r.Destination, r.NextHop),
		Description: markPrefix + c.Owner,
		Network:     path,
		DestRange:   r.Destination.String(),
		Priority:    priority,
	}
	if instancePattern.MatchString(string(r.NextHop)) {
		entry.NextHopInstance = string(r.NextHop)
	} else {
		entry.NextHopIp = string(r.NextHop)
	}
	return entry
}

// isGone is true for the warnings that a route's machine is not there
// (enumeration of Route.warnings in the API's discovery document).
func isGone(code string) bool {
	return slices.Contains([]string{
		"NEXT_HOP_INSTANCE_NOT_FOUND", "NEXT_HOP_INSTANCE_NOT_ON_NETWORK", "NEXT_HOP_NOT_RUNNING", "NEXT_HOP_ADDRESS_NOT_ASSIGNED",
	}, code)
}

// barriers are the warnings that a machine is there and drops pods' packets,
// and what to do about each.
var barriers = map[string]string{
	"NEXT_HOP_CANNOT_IP_FORWARD":              "canIpForward is off, so the cloud drops pods' packets: make the machine anew with canIpForward on (gcloud: --can-ip-forward)",
	"NEXT_HOP_INSTANCE_HAS_NO_IPV6_INTERFACE": "its interface has no IPv6, so IPv6 packets do not get there: use a dual-stack subnet and interface",
}

// barred says what keeps packets from passing a route's machine, or "".
func barred(warnings []*compute.RouteWarnings) (why string) {
	warns(warnings, func(code string) bool {
		why = barriers[code]
		return why != ""
	})
	return why
}

func warns(warnings []*compute.RouteWarnings, about func(code string) bool) bool {
	return slices.ContainsFunc(warnings, func(w *compute.RouteWarnings) bool { return w != nil && about(w.Code) })
}
