package tencent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultPage  = 20
	largestPage  = 100
	enableMax    = 100 // ids in one EnableRoutes
	ecmpMachines = 8   // for one range
)

type filter struct {
	Name   string
	Values []string
}

// page cuts one page out of a list; offset and limit are strings in this API.
func page[T any](all []T, offset, limit string) ([]T, *problem) {
	from, size := 0, defaultPage
	var err error
	if offset != "" {
		if from, err = strconv.Atoi(offset); err != nil || from < 0 {
			return nil, problemf("InvalidParameterValue.Malformed", "Offset %q is not valid", offset)
		}
	}
	if limit != "" {
		if size, err = strconv.Atoi(limit); err != nil || size < 1 || size > largestPage {
			return nil, problemf("InvalidParameterValue.Range", "Limit %q is not between 1 and %d", limit, largestPage)
		}
	}
	from = min(from, len(all))
	return all[from:min(from+size, len(all))], nil
}

type describeRouteTablesRequest struct {
	Filters       []filter
	RouteTableIds []string
	Offset, Limit string
}

type tag struct{ Key, Value string }

type association struct{ SubnetId, RouteTableId string }

type describedTable struct {
	VpcId, RouteTableId, RouteTableName string
	Main                                bool
	AssociationSet                      []association
	RouteSet                            []Route
	TagSet                              []tag
}

func (e *Emulator) describeRouteTables(q describeRouteTablesRequest) (any, *problem) {
	if len(q.Filters) > 0 && len(q.RouteTableIds) > 0 {
		return nil, problemf("InvalidParameter.Coexist", "RouteTableIds and Filters exclude each other")
	}
	seen := e.seen()
	for _, id := range q.RouteTableIds {
		if _, there := seen.vpc[id]; !there {
			return nil, problemf("ResourceNotFound", "route table %s is not found", id)
		}
	}
	found := []describedTable{}
	for _, id := range slices.Sorted(maps.Keys(seen.vpc)) {
		t := seen.vpc[id]
		ok, p := t.passes(id, q.Filters)
		if p != nil {
			return nil, p
		}
		if ok && (len(q.RouteTableIds) == 0 || slices.Contains(q.RouteTableIds, id)) {
			found = append(found, e.describe(id, t))
		}
	}
	set, p := page(found, q.Offset, q.Limit)
	return map[string]any{"TotalCount": len(found), "RouteTableSet": set}, p
}

// passes is true when the table meets every filter by one of its values.
func (t routeTable) passes(id string, filters []filter) (bool, *problem) {
	for _, f := range filters {
		var have string
		key, isTag := strings.CutPrefix(f.Name, "tag:")
		switch {
		case f.Name == "vpc-id":
			have = t.vpc
		case f.Name == "route-table-id":
			have = id
		case f.Name == "association.main":
			have = strings.ToUpper(strconv.FormatBool(t.main))
		case isTag:
			have = t.tags[key]
		default:
			return false, problemf("InvalidParameter.FilterInvalidKey", "filter %q is not known", f.Name)
		}
		if !slices.Contains(f.Values, have) {
			return false, nil
		}
	}
	return true, nil
}

func (e *Emulator) describe(id string, t routeTable) describedTable {
	d := describedTable{VpcId: t.vpc, RouteTableId: id, RouteTableName: id, Main: t.main, RouteSet: slices.Clone(t.routes)}
	for _, name := range slices.Sorted(maps.Keys(e.networks[t.vpc].subnets)) {
		if e.networks[t.vpc].subnets[name].table == id {
			d.AssociationSet = append(d.AssociationSet, association{name, id})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(t.tags)) {
		d.TagSet = append(d.TagSet, tag{k, t.tags[k]})
	}
	return d
}

type routesRequest struct {
	RouteTableId string
	Routes       []Route
}

// edit changes a table entry by entry. A bad entry refuses the whole batch, or,
// with PartialBatches, keeps the entries in front of it.
func (e *Emulator) edit(q routesRequest, one func(t *routeTable, r Route) (Route, *problem)) ([]Route, *problem) {
	if _, there := e.tables.vpc[q.RouteTableId]; !there {
		return nil, problemf("ResourceNotFound", "route table %s is not found", q.RouteTableId)
	}
	if len(q.Routes) == 0 {
		return nil, problemf("MissingParameter", "Routes is missing")
	}
	if len(q.Routes) > e.options.Batch {
		return nil, problemf("InvalidParameterValue.LimitExceeded", "%d routes in one call, %d are allowed", len(q.Routes), e.options.Batch)
	}
	next := e.tables.clone()
	t := next.vpc[q.RouteTableId]
	var done []Route
	for _, r := range q.Routes {
		out, p := one(&t, r)
		if p != nil {
			if e.options.PartialBatches {
				next.vpc[q.RouteTableId] = t
				e.commit(next)
			}
			return nil, p
		}
		done = append(done, out)
	}
	next.vpc[q.RouteTableId] = t
	e.commit(next)
	return done, nil
}

func (e *Emulator) createRoutes(q routesRequest) (any, *problem) {
	done, p := e.edit(q, func(t *routeTable, r Route) (Route, *problem) {
		if p := e.check(*t, r, ""); p != nil {
			return r, p
		}
		if users := t.users(); users >= e.options.RoutesPerTable {
			return r, problemf("LimitExceeded", "the table has %d routes, %d are allowed", users, e.options.RoutesPerTable)
		}
		r = e.numbered(q.RouteTableId, Route{
			DestinationCidrBlock: r.DestinationCidrBlock, GatewayType: r.GatewayType, GatewayId: r.GatewayId, RouteDescription: r.RouteDescription,
		})
		t.routes = append(t.routes, r)
		return r, nil
	})
	if p != nil {
		return nil, p
	}
	set := []describedTable{{VpcId: e.tables.vpc[q.RouteTableId].vpc, RouteTableId: q.RouteTableId, RouteSet: done}}
	return map[string]any{"TotalCount": len(done), "RouteTableSet": set}, nil
}

func (t routeTable) users() (n int) {
	for _, r := range t.routes {
		if r.RouteType == "USER" {
			n++
		}
	}
	return n
}

// check judges a new or changed route; self is the item id of the latter.
func (e *Emulator) check(t routeTable, r Route, self string) *problem {
	destination, err := netip.ParsePrefix(r.DestinationCidrBlock)
	if err != nil || destination != destination.Masked() || !destination.Addr().Is4() {
		return problemf("InvalidParameterValue.Malformed", "DestinationCidrBlock %q is not valid", r.DestinationCidrBlock)
	}
	if r.GatewayType != "NORMAL_CVM" {
		return problemf("UnsupportedOperation", "the emulator routes to NORMAL_CVM only")
	}
	if gateway, err := netip.ParseAddr(r.GatewayId); err != nil || !e.alive(t.vpc, gateway).IsValid() {
		return problemf("ResourceNotFound", "no CVM of %s has the address %q", t.vpc, r.GatewayId)
	}
	for _, own := range e.networks[t.vpc].ranges {
		if inside(own, destination) {
			return problemf("InvalidParameterValue.VpcCidrConflict", "%s is inside the VPC's %s", destination, own)
		}
	}
	for name, c := range e.tables.cluster {
		if c.vpc == t.vpc && c.cidr.Overlaps(destination) {
			return problemf("UnsupportedOperation.ConflictWithDockerRoute", "%s conflicts with %s of %s", destination, c.cidr, name)
		}
	}
	return e.checkTwins(t, r, self)
}

// checkTwins judges a route beside the others of the same range.
func (e *Emulator) checkTwins(t routeTable, r Route, self string) *problem {
	machines := 1
	for _, old := range t.routes {
		switch {
		case old.DestinationCidrBlock != r.DestinationCidrBlock || old.RouteItemId == self:
		case old.GatewayId == r.GatewayId && old.GatewayType == r.GatewayType:
			return problemf("InvalidParameterValue.Duplicate", "a route to %s by %s exists", r.DestinationCidrBlock, r.GatewayId)
		case !old.enabled():
		case old.RouteType == "CCN":
			return problemf("UnsupportedOperation.EcmpWithCcnRoute", "CCN has a route to %s", r.DestinationCidrBlock)
		case old.RouteType != "USER" || old.GatewayType != "NORMAL_CVM":
			return problemf("UnsupportedOperation.Ecmp", "another kind of route to %s exists", r.DestinationCidrBlock)
		default:
			machines++
		}
	}
	if machines > ecmpMachines || machines > 1 && !e.options.ECMP {
		return problemf("UnsupportedOperation.EcmpWithUserRoute", "a route to %s exists", r.DestinationCidrBlock)
	}
	return nil
}

// find returns the index of the route that a request names, by the given kind
// of key.
func find(t *routeTable, r Route, key, missing string) (int, *problem) {
	item, number := r.RouteItemId, r.RouteId
	switch key {
	case NumberKey:
		item = ""
	case ItemKey:
		number = 0
	}
	if item == "" && number == 0 {
		return 0, problemf("InvalidParameterValue.Malformed", "the route is not named by %s", key)
	}
	i := slices.IndexFunc(t.routes, func(x Route) bool {
		return (item == "" || x.RouteItemId == item) && (number == 0 || x.RouteId == number)
	})
	switch {
	case i < 0:
		return 0, problemf(missing, "route %s %d is not there", item, number)
	case t.routes[i].RouteType != "USER":
		return 0, problemf("UnsupportedOperation.SystemRoute", "route %s is a system route", t.routes[i].RouteItemId)
	}
	return i, nil
}

func (e *Emulator) replaceRoutes(q routesRequest) (any, *problem) {
	var old []Route
	done, p := e.edit(q, func(t *routeTable, r Route) (Route, *problem) {
		i, p := find(t, r, e.options.Key, "UnsupportedOperation.RecordNotExists")
		if p != nil {
			return r, p
		}
		was := t.routes[i]
		if p := e.check(*t, r, was.RouteItemId); p != nil {
			return r, p
		}
		old = append(old, was)
		now := was
		now.DestinationCidrBlock, now.GatewayType, now.GatewayId, now.RouteDescription = r.DestinationCidrBlock, r.GatewayType, r.GatewayId, r.RouteDescription
		t.routes[i] = now
		return now, nil
	})
	return map[string]any{"OldRouteSet": old, "NewRouteSet": done}, p
}

func (e *Emulator) deleteRoutes(q routesRequest) (any, *problem) {
	done, p := e.edit(q, func(t *routeTable, r Route) (Route, *problem) {
		i, p := find(t, r, e.options.Key, "ResourceNotFound")
		if p != nil {
			return r, p
		}
		gone := t.routes[i]
		if gone.PublishedToVbc {
			return r, problemf("UnsupportedOperation.DisabledNotifyCcn", "route %s is published to CCN", gone.RouteItemId)
		}
		t.routes = slices.Delete(t.routes, i, i+1)
		return gone, nil
	})
	return map[string]any{"RouteSet": done}, p
}

type switchRequest struct {
	RouteTableId string
	RouteIds     []uint64
	RouteItemIds []string
}

func (e *Emulator) enableRoutes(q switchRequest) (any, *problem)  { return e.toggle(q, true) }
func (e *Emulator) disableRoutes(q switchRequest) (any, *problem) { return e.toggle(q, false) }

func (e *Emulator) toggle(q switchRequest, on bool) (any, *problem) {
	switch n := len(q.RouteIds) + len(q.RouteItemIds); {
	case len(q.RouteIds) > 0 && len(q.RouteItemIds) > 0:
		return nil, problemf("InvalidParameter.Coexist", "RouteIds and RouteItemIds exclude each other")
	case n == 0:
		return nil, problemf("MissingParameter", "RouteIds or RouteItemIds is missing")
	case n > enableMax:
		return nil, problemf("InvalidParameterValue.LimitExceeded", "%d routes in one call, %d are allowed", n, enableMax)
	}
	batch := routesRequest{RouteTableId: q.RouteTableId}
	for _, id := range q.RouteIds {
		batch.Routes = append(batch.Routes, Route{RouteId: id})
	}
	for _, id := range q.RouteItemIds {
		batch.Routes = append(batch.Routes, Route{RouteItemId: id})
	}
	_, p := e.edit(batch, func(t *routeTable, r Route) (Route, *problem) {
		i, p := find(t, r, EitherKey, "ResourceNotFound")
		if p != nil {
			return r, p
		}
		if on {
			if p := e.checkTwins(*t, t.routes[i], t.routes[i].RouteItemId); p != nil {
				return r, p
			}
		}
		t.routes[i].Enabled = &on
		return t.routes[i], nil
	})
	return nil, p
}

func (e *Emulator) describeVpcLimits(q struct{ LimitTypes []string }) (any, *problem) {
	values := map[string]int{"route-table-max-policies": e.options.RoutesPerTable, "vpc-max-route-tables": 10}
	set := []map[string]any{}
	for _, name := range q.LimitTypes {
		v, known := values[name]
		if !known {
			return nil, problemf("InvalidParameterValue", "limit %q is not known", name)
		}
		set = append(set, map[string]any{"LimitType": name, "LimitValue": v})
	}
	return map[string]any{"VpcLimitSet": set}, nil
}

type describeSubnetsRequest struct {
	Filters       []filter
	SubnetIds     []string
	Offset, Limit string
}

type describedSubnet struct{ VpcId, SubnetId, CidrBlock, RouteTableId string }

func (e *Emulator) describeSubnets(q describeSubnetsRequest) (any, *problem) {
	if len(q.SubnetIds) > 0 || len(q.Filters) != 1 || q.Filters[0].Name != "vpc-id" {
		return nil, problemf("UnsupportedOperation", "the emulator takes the filter vpc-id only")
	}
	found := []describedSubnet{}
	for _, vpc := range q.Filters[0].Values {
		n := e.networks[vpc]
		if n == nil {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(n.subnets)) {
			found = append(found, describedSubnet{vpc, id, n.subnets[id].cidr.String(), n.subnets[id].table})
		}
	}
	set, p := page(found, q.Offset, q.Limit)
	return map[string]any{"TotalCount": len(found), "SubnetSet": set}, p
}

type describeVpcsRequest struct {
	VpcIds        []string
	Offset, Limit string
}

func (e *Emulator) describeVpcs(q describeVpcsRequest) (any, *problem) {
	set := []map[string]any{}
	for _, id := range q.VpcIds {
		n := e.networks[id]
		if n == nil {
			return nil, problemf("ResourceNotFound", "VPC %s is not found", id)
		}
		added := []map[string]any{}
		for _, r := range n.ranges[1:] {
			added = append(added, map[string]any{"VpcId": id, "CidrBlock": r.String(), "AssistantType": 0})
		}
		set = append(set, map[string]any{"VpcId": id, "CidrBlock": fmt.Sprint(n.ranges[0]), "AssistantCidrSet": added})
	}
	return map[string]any{"TotalCount": len(set), "VpcSet": set}, nil
}
