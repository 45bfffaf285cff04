package tencent

import (
	"maps"
	"net/netip"
	"slices"
)

// Allowed lengths of a cluster route table's range, from the text of the SDK's
// CidrMaskSizeOutOfRange code.
const (
	shortestTable = 10
	longestTable  = 24
)

type createClusterRouteTableRequest struct {
	RouteTableName            string
	RouteTableCidrBlock       string
	VpcId                     string
	IgnoreClusterCidrConflict int64
}

func (e *Emulator) createClusterRouteTable(q createClusterRouteTableRequest) (any, *problem) {
	cidr, err := netip.ParsePrefix(q.RouteTableCidrBlock)
	n := e.networks[q.VpcId]
	if err != nil || cidr != cidr.Masked() || !cidr.Addr().Is4() || cidr.Bits() < shortestTable || cidr.Bits() > longestTable || n == nil || q.RouteTableName == "" {
		return nil, problemf(e.code("Param"), "RouteTableName, RouteTableCidrBlock or VpcId is not valid")
	}
	if _, there := e.tables.cluster[q.RouteTableName]; there {
		return nil, problemf(e.code("ResourceExistAlready"), "route table %s exists already", q.RouteTableName)
	}
	if len(e.tables.cluster) >= e.options.ClusterTables {
		return nil, problemf(e.code("QuotaMaxRtLimit"), "there are %d route tables", len(e.tables.cluster))
	}
	for _, c := range e.conflicts(q.VpcId, cidr) {
		code := map[string]string{
			"CcsCluster":           "CidrConflictWithOtherCluster",
			"CcsClusterRouteTable": "CidrConflictWithOtherCluster",
			"Vpc":                  "CidrConflictWithVpcCidr",
			"VpcRouteTable":        "CidrConflictWithOtherRoute",
		}[c.RouteTableType]
		if c.RouteTableCidrBlock == "0.0.0.0/0" {
			continue // every VPC with a NAT gateway has one
		}
		ofVPC := c.RouteTableType == "Vpc" || c.RouteTableType == "VpcRouteTable"
		if !ofVPC || q.IgnoreClusterCidrConflict == 0 {
			return nil, problemf(e.code(code), "%s conflicts with %s of %s", cidr, c.RouteTableCidrBlock, c.RouteTableName)
		}
	}
	next := e.tables.clone()
	next.cluster[q.RouteTableName] = clusterTable{vpc: q.VpcId, cidr: cidr}
	e.commit(next)
	return nil, nil
}

type clusterRouteTable struct {
	RouteTableName      string
	RouteTableCidrBlock string
	VpcId               string
}

func (e *Emulator) describeClusterRouteTables(struct{}) (any, *problem) {
	set, seen := []clusterRouteTable{}, e.seen()
	for _, name := range slices.Sorted(maps.Keys(seen.cluster)) {
		t := seen.cluster[name]
		set = append(set, clusterRouteTable{name, t.cidr.String(), t.vpc})
	}
	return map[string]any{"TotalCount": len(set), "RouteTableSet": set}, nil
}

func (e *Emulator) deleteClusterRouteTable(q struct{ RouteTableName string }) (any, *problem) {
	t, there := e.tables.cluster[q.RouteTableName]
	if !there {
		return nil, problemf("InternalError", "route table %s is not there", q.RouteTableName)
	}
	if len(t.routes) > 0 {
		return nil, problemf(e.code("RouteTableNotEmpty"), "route table %s has %d routes", q.RouteTableName, len(t.routes))
	}
	next := e.tables.clone()
	delete(next.cluster, q.RouteTableName)
	e.commit(next)
	return nil, nil
}

type clusterRouteRequest struct {
	RouteTableName       string
	DestinationCidrBlock string
	GatewayIp            string
}

// parse reads the range and the gateway, and finds the table.
func (q clusterRouteRequest) parse(e *Emulator) (t clusterTable, r clusterRoute, p *problem) {
	destination, err := netip.ParsePrefix(q.DestinationCidrBlock)
	if err != nil || destination != destination.Masked() || !destination.Addr().Is4() {
		return t, r, problemf(e.code("Param"), "DestinationCidrBlock %q is not valid", q.DestinationCidrBlock)
	}
	gateway, err := netip.ParseAddr(q.GatewayIp)
	if err != nil || !gateway.Is4() {
		return t, r, problemf(e.code("Param"), "GatewayIp %q is not valid", q.GatewayIp)
	}
	t, there := e.tables.cluster[q.RouteTableName]
	if !there {
		return t, r, problemf(e.code("RouteTableNotFound"), "route table %s is not found", q.RouteTableName)
	}
	return t, clusterRoute{destination, gateway}, nil
}

func (e *Emulator) createClusterRoute(q clusterRouteRequest) (any, *problem) {
	t, r, p := q.parse(e)
	if p != nil {
		return nil, p
	}
	if !inside(t.cidr, r.destination) {
		return nil, problemf(e.code("CidrOutOfRouteTable"), "%s is not inside %s", r.destination, t.cidr)
	}
	if !e.alive(t.vpc, r.gateway).IsValid() {
		return nil, problemf(e.code("CvmNotFound"), "no CVM of %s has the address %s", t.vpc, r.gateway)
	}
	for _, old := range t.routes {
		if old.gateway == r.gateway {
			return nil, problemf(e.code("GatewayAlreadyAssociatedCidr"), "gateway %s is already associated with %s", r.gateway, old.destination)
		}
	}
	for _, old := range t.routes {
		if old.destination.Overlaps(r.destination) {
			return nil, problemf(e.code("CidrConflictWithOtherRoute"), "%s conflicts with %s", r.destination, old.destination)
		}
	}
	next := e.tables.clone()
	t = next.cluster[q.RouteTableName]
	t.routes = append(t.routes, r)
	next.cluster[q.RouteTableName] = t
	e.commit(next)
	return nil, nil
}

type describeClusterRoutesRequest struct {
	RouteTableName string
	Filters        []filter
}

func (e *Emulator) describeClusterRoutes(q describeClusterRoutesRequest) (any, *problem) {
	t, there := e.seen().cluster[q.RouteTableName]
	if !there {
		return nil, problemf("InternalError.Param", "route table %s is not found", q.RouteTableName)
	}
	if len(q.Filters) > 1 || len(q.Filters) == 1 && q.Filters[0].Name != "GatewayIP" {
		return nil, problemf("InvalidParameter", "GatewayIP is the only filter")
	}
	set := []clusterRouteRequest{}
	for _, r := range t.routes {
		if len(q.Filters) == 0 || slices.Contains(q.Filters[0].Values, r.gateway.String()) {
			set = append(set, clusterRouteRequest{q.RouteTableName, r.destination.String(), r.gateway.String()})
		}
	}
	return map[string]any{"TotalCount": len(set), "RouteSet": set}, nil
}

func (e *Emulator) deleteClusterRoute(q clusterRouteRequest) (any, *problem) {
	t, r, p := q.parse(e)
	if p != nil {
		if p.code == "ResourceNotFound.RouteTableNotFound" {
			p.code = "InternalError.RouteTableNotFound" // the only one listed for this action
		}
		return nil, p
	}
	if !slices.Contains(t.routes, r) {
		if e.options.MissingRoute == MissingSucceeds {
			return nil, nil
		}
		code := "InternalError.Param"
		if e.options.TwinCodes {
			code = "FailedOperation.Param"
		}
		return nil, problemf(code, "no route to %s by %s", r.destination, r.gateway)
	}
	next := e.tables.clone()
	t = next.cluster[q.RouteTableName]
	t.routes = slices.DeleteFunc(t.routes, func(x clusterRoute) bool { return x == r })
	next.cluster[q.RouteTableName] = t
	e.commit(next)
	return nil, nil
}

type conflict struct {
	RouteTableType      string
	RouteTableCidrBlock string
	RouteTableName      string
	RouteTableId        string
}

type conflictsRequest struct {
	RouteTableCidrBlock string
	VpcId               string
}

func (e *Emulator) describeRouteTableConflicts(q conflictsRequest) (any, *problem) {
	cidr, err := netip.ParsePrefix(q.RouteTableCidrBlock)
	if err != nil {
		return nil, problemf("InternalError.Param", "RouteTableCidrBlock: %v", err)
	}
	if e.networks[q.VpcId] == nil {
		return nil, problemf("InternalError.VpcRecodrNotFound", "VPC %s is not found", q.VpcId)
	}
	set := e.conflicts(q.VpcId, cidr)
	return map[string]any{"HasConflict": len(set) > 0, "RouteTableConflictSet": set}, nil
}

// conflicts lists what overlaps a range in a VPC, default routes among it.
func (e *Emulator) conflicts(vpc string, cidr netip.Prefix) []conflict {
	set := []conflict{}
	n := e.networks[vpc]
	for _, name := range slices.Sorted(maps.Keys(n.clusters)) {
		if n.clusters[name].Overlaps(cidr) {
			set = append(set, conflict{"CcsCluster", n.clusters[name].String(), name, name})
		}
	}
	for _, r := range n.ranges {
		if r.Overlaps(cidr) {
			set = append(set, conflict{"Vpc", r.String(), vpc, vpc})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.tables.vpc)) {
		for _, r := range e.tables.vpc[id].routes {
			d, err := netip.ParsePrefix(r.DestinationCidrBlock)
			if e.tables.vpc[id].vpc == vpc && err == nil && d.Overlaps(cidr) {
				set = append(set, conflict{"VpcRouteTable", d.String(), id, id})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.tables.cluster)) {
		if t := e.tables.cluster[name]; t.vpc == vpc && t.cidr.Overlaps(cidr) {
			set = append(set, conflict{"CcsClusterRouteTable", t.cidr.String(), name, name})
		}
	}
	return set
}

func inside(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
