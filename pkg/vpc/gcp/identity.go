package gcp

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const providerExample = "gce://shop-prod-1/europe-west1-b/node-1"

var (
	providerPattern = regexp.MustCompile(`^gce://([^/]+)/([^/]+)/([^/]+)$`)
	instancePattern = regexp.MustCompile(`^projects/[^/]+/zones/[^/]+/instances/[^/]+$`)
)

// tail is the part of a resource's URL by which two of them are compared, for
// example "projects/p/global/networks/n": the host and the version in front of
// it differ from answer to answer.
func tail(url string) string {
	if i := strings.Index(url, "/projects/"); i >= 0 {
		return url[i+1:]
	}
	return url
}

func (c *client) networkPath(name string) string {
	return "projects/" + c.project + "/global/networks/" + name
}

// hopOf names a node as the target of a route, without asking the cloud: by its
// instance, "projects/P/zones/Z/instances/N", or by its internal address. A
// route's instance has to be in the route's project
// (docs.cloud.google.com/vpc/docs/static-routes).
func hopOf(c Config, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	id := providerPattern.FindStringSubmatch(node.ProviderID)
	switch {
	case node.ProviderID != "" && id == nil:
		return "", vpc.Errorf(vpc.Invalid, "node %s: provider ID %q is not a machine of Google Cloud: want one such as %q, or exclude the node", node.Name, node.ProviderID, providerExample)
	case id != nil && id[1] == c.Project && c.NextHops != Address:
		return vpc.NextHop(fmt.Sprintf("projects/%s/zones/%s/instances/%s", id[1], id[2], id[3])), nil
	case c.NextHops == Instance && id == nil:
		return "", vpc.Errorf(vpc.Invalid, "node %s: has no provider ID, by which its instance is found: want one such as %q", node.Name, providerExample)
	case c.NextHops == Instance:
		return "", vpc.Errorf(vpc.Invalid, "node %s: its project %s is not the network's, %s: name next hops by address", node.Name, id[1], c.Project)
	}
	a := node.Address(family)
	if !a.IsValid() {
		return "", vpc.Errorf(vpc.Invalid, "node %s: has neither a provider ID in project %s nor an internal %v address (found %q and %v)", node.Name, c.Project, family, node.ProviderID, node.Addresses)
	}
	return vpc.NextHop(a.String()), nil
}

// checkHop says why a route to a destination cannot lead to a next hop, or
// returns "".
func checkHop(destination netip.Prefix, hop vpc.NextHop) string {
	if instancePattern.MatchString(string(hop)) {
		return ""
	}
	a, err := netip.ParseAddr(string(hop))
	switch {
	case err != nil:
		return "the next hop is neither an instance nor an address"
	case a.Is4() != destination.Addr().Is4():
		return "the next hop is an address of the other family"
	}
	return ""
}
