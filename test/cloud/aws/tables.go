package aws

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The largest MaxResults.
const (
	largestTablePage = 100
	largestPage      = 1000
)

var routeParameters = []string{"RouteTableId", "DestinationCidrBlock", "DestinationIpv6CidrBlock", "NetworkInterfaceId", "InstanceId"}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type association struct {
	ID      string `xml:"routeTableAssociationId"`
	TableID string `xml:"routeTableId"`
	Subnet  string `xml:"subnetId,omitempty"`
	Main    bool   `xml:"main"`
	State   string `xml:"associationState>state"`
}

type describedTable struct {
	ID           string        `xml:"routeTableId"`
	VPC          string        `xml:"vpcId"`
	Owner        string        `xml:"ownerId"`
	Routes       []Route       `xml:"routeSet>item"`
	Associations []association `xml:"associationSet>item"`
	Tags         []tag         `xml:"tagSet>item"`
}

type describedTables struct {
	Tables []describedTable `xml:"routeTableSet>item"`
	Next   string           `xml:"nextToken,omitempty"`
}

func (e *Emulator) describeRouteTables(q parameters) (any, *problem) {
	seen, ids, filters := e.seen(), q.list("RouteTableId"), q.filters()
	for _, id := range ids {
		if _, there := seen.tables[id]; !there {
			return nil, noSuchTable(id)
		}
	}
	var found []describedTable
	for _, id := range slices.Sorted(maps.Keys(seen.tables)) {
		t := seen.tables[id]
		ok, p := selects(filters, func(name string) ([]string, bool) { return t.values(id, name) })
		if p != nil {
			return nil, p
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, id)) {
			found = append(found, e.describe(seen, id, t))
		}
	}
	part, next, p := page(q, found, largestTablePage)
	return describedTables{part, next}, p
}

// values are what a filter is compared with.
func (t table) values(id, name string) (values []string, known bool) {
	key, isTag := strings.CutPrefix(name, "tag:")
	switch {
	case name == "vpc-id":
		return []string{t.vpc}, true
	case name == "route-table-id":
		return []string{id}, true
	case name == "association.subnet-id":
		return t.subnets, true
	case name == "association.main":
		return []string{strconv.FormatBool(t.main)}, true
	case isTag:
		if v, there := t.tags[key]; there {
			values = []string{v}
		}
		return values, true
	}
	return nil, false
}

func (e *Emulator) describe(seen state, id string, t table) describedTable {
	d := describedTable{ID: id, VPC: t.vpc, Owner: "111122223333", Routes: e.described(seen, t.routes)}
	if t.main {
		d.Associations = append(d.Associations, association{"rtbassoc-main-" + id, id, "", true, "associated"})
	}
	for _, s := range t.subnets {
		d.Associations = append(d.Associations, association{"rtbassoc-" + s, id, s, false, "associated"})
	}
	for _, k := range slices.Sorted(maps.Keys(t.tags)) {
		d.Tags = append(d.Tags, tag{k, t.tags[k]})
	}
	return d
}

// described fills in what the API tells of a route's target.
func (e *Emulator) described(seen state, routes []Route) []Route {
	routes = slices.Clone(routes)
	for n, r := range routes {
		if r.NetworkInterfaceID == "" {
			if r.State == "" {
				routes[n].State = "active"
			}
			continue
		}
		i, there := seen.interfaces[r.NetworkInterfaceID]
		if i.Instance != "" {
			routes[n].InstanceID, routes[n].InstanceOwnerID = i.Instance, "111122223333"
		}
		if routes[n].State = "active"; !seen.alive(r.NetworkInterfaceID) {
			routes[n].State = "blackhole"
		}
		if !there && e.options.BlackholeForgets {
			routes[n].NetworkInterfaceID = ""
		}
	}
	return routes
}

func noSuchTable(id string) *problem {
	return problemf("InvalidRouteTableID.NotFound", "The routeTable ID '%s' does not exist", id)
}

type done struct {
	Return bool `xml:"return"`
}

func (e *Emulator) createRoute(q parameters) (any, *problem) {
	return e.edit(q, func(next state, t *table, at int, r Route) *problem {
		switch {
		case at >= 0 && e.options.SameRouteSucceeds && t.routes[at].NetworkInterfaceID == q.get("NetworkInterfaceId"):
			return nil
		case at >= 0:
			return problemf("RouteAlreadyExists", "The route identified by %s already exists.", r.destination())
		}
		if p := next.resolve(&r, q); p != nil {
			return p
		}
		if t.count(r) >= e.options.RoutesPerTable {
			return problemf("RouteLimitExceeded", "The maximum number of routes has been reached.")
		}
		t.routes = append(t.routes, r)
		return nil
	})
}

func (e *Emulator) replaceRoute(q parameters) (any, *problem) {
	return e.edit(q, func(next state, t *table, at int, r Route) *problem {
		switch {
		case at < 0:
			return problemf("InvalidParameterValue", "There is no route defined for '%s' in the route table. Use CreateRoute instead.", r.destination())
		case !t.routes[at].static():
			return problemf("InvalidParameterValue", "cannot replace local route %s in route table", r.destination())
		}
		if p := next.resolve(&r, q); p != nil {
			return p
		}
		t.routes[at] = r
		return nil
	})
}

func (e *Emulator) deleteRoute(q parameters) (any, *problem) {
	return e.edit(q, func(_ state, t *table, at int, r Route) *problem {
		switch {
		case at < 0:
			return problemf("InvalidRoute.NotFound", "no route with destination-cidr-block %s in route table %s", r.destination(), q.get("RouteTableId"))
		case !t.routes[at].static():
			return problemf("InvalidParameterValue", "cannot remove local route %s in route table %s", r.destination(), q.get("RouteTableId"))
		}
		t.routes = slices.Delete(t.routes, at, at+1)
		return nil
	})
}

// edit changes one table. at is the index of the entry for the destination: the
// static one where there is a propagated one too, else -1.
func (e *Emulator) edit(q parameters, one func(next state, t *table, at int, r Route) *problem) (any, *problem) {
	id := q.get("RouteTableId")
	next := e.state.clone()
	t, there := next.tables[id]
	if !there {
		return nil, noSuchTable(id)
	}
	r := Route{Origin: byHand}
	if p := r.parse(q); p != nil {
		return nil, p
	}
	if p := one(next, &t, t.index(r.destination()), r); p != nil {
		return nil, p
	}
	next.tables[id] = t
	e.commit(next)
	return done{true}, nil
}

// parse reads the destination, which has to be exactly one.
func (r *Route) parse(q parameters) *problem {
	v4, v6 := q.get("DestinationCidrBlock"), q.get("DestinationIpv6CidrBlock")
	if (v4 == "") == (v6 == "") {
		return problemf("InvalidParameterCombination", "exactly one destination has to be given")
	}
	p, err := netip.ParsePrefix(v4 + v6)
	if err != nil || p.Addr().Is4() != (v4 != "") {
		return problemf("InvalidParameterValue", "Value (%s) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.", v4+v6)
	}
	r.setDestination(p.Masked())
	return nil
}

// index finds the entry that a call with this destination means, or -1.
func (t *table) index(destination string) int {
	return slices.IndexFunc(t.routes, func(r Route) bool { return r.destination() == destination && r.Origin != propagated })
}

// count counts the entries of a route's family that the quota counts.
func (t *table) count(like Route) (n int) {
	for _, r := range t.routes {
		if r.Origin != propagated && (r.DestinationIpv6CidrBlock == "") == (like.DestinationIpv6CidrBlock == "") {
			n++
		}
	}
	return n
}

// resolve finds the target, which has to be exactly one.
func (s state) resolve(r *Route, q parameters) *problem {
	id, instance := q.get("NetworkInterfaceId"), q.get("InstanceId")
	if (id == "") == (instance == "") {
		return problemf("InvalidParameterCombination", "exactly one target has to be given")
	}
	if instance != "" {
		var all []string
		for _, i := range s.interfaces {
			if i.Instance == instance {
				all = append(all, i.ID)
			}
		}
		switch len(all) {
		case 0:
			return problemf("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", instance)
		case 1:
			id = all[0]
		default:
			return problemf("InvalidInstanceID", "There are multiple interfaces attached to instance '%s'. Please specify an interface ID for the operation instead.", instance)
		}
	}
	if _, there := s.interfaces[id]; !there {
		return problemf("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
	}
	r.NetworkInterfaceID = id
	return nil
}
