package tencent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// A network is one VPC with what does not change by itself.
type network struct {
	ranges   []netip.Prefix // the first is the VPC's own, the others were added
	subnets  map[string]subnet
	machines map[netip.Addr]bool // by private address
	clusters map[string]netip.Prefix
}

type subnet struct {
	cidr  netip.Prefix
	table string
}

// tables is everything that calls can change.
type tables struct {
	cluster map[string]clusterTable
	vpc     map[string]routeTable
}

type clusterTable struct {
	vpc    string
	cidr   netip.Prefix
	routes []clusterRoute
}

type clusterRoute struct {
	destination netip.Prefix
	gateway     netip.Addr
}

type routeTable struct {
	vpc    string
	main   bool
	tags   map[string]string
	routes []Route
}

// A Route is an entry of a VPC route table as the API spells it.
type Route struct {
	DestinationCidrBlock     string  `json:",omitempty"`
	DestinationIpv6CidrBlock *string // null in the answer for an IPv4 route
	GatewayType              string  `json:",omitempty"`
	GatewayId                string  `json:",omitempty"`
	RouteId                  uint64
	RouteItemId              string `json:",omitempty"`
	RouteTableId             string `json:",omitempty"`
	RouteDescription         string
	Enabled                  *bool
	RouteType                string `json:",omitempty"`
	PublishedToVbc           bool
	CreatedTime              string `json:",omitempty"`
}

func (r Route) enabled() bool { return r.Enabled == nil || *r.Enabled }

func (t tables) clone() tables {
	c := tables{cluster: maps.Clone(t.cluster), vpc: maps.Clone(t.vpc)}
	for name, x := range c.cluster {
		x.routes = slices.Clone(x.routes)
		c.cluster[name] = x
	}
	for id, x := range c.vpc {
		x.routes = slices.Clone(x.routes)
		c.vpc[id] = x
	}
	return c
}

// commit makes the next state the present one: reads see it after SeeAfter,
// packets after the frame's EffectDelay.
func (e *Emulator) commit(next tables) {
	e.tables = next
	if e.options.SeeAfter > 0 {
		e.history.Put(e.Clock.Now(), next.clone(), 2*e.options.SeeAfter)
	}
	e.Effect(e.effect())
}

// seen is the state that reads show.
func (e *Emulator) seen() tables {
	if e.options.SeeAfter > 0 {
		return e.history.At(e.Clock.Now().Add(-e.options.SeeAfter))
	}
	return e.tables
}

// effect is what packets feel: cluster routes first, since they win.
func (e *Emulator) effect() []cloud.Route {
	var routes []cloud.Route
	taken := map[netip.Prefix]bool{}
	for _, name := range slices.Sorted(maps.Keys(e.tables.cluster)) {
		t := e.tables.cluster[name]
		for _, r := range t.routes {
			taken[r.destination] = true
			routes = append(routes, cloud.Route{Destination: r.destination, Via: e.alive(t.vpc, r.gateway)})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.tables.vpc)) {
		t := e.tables.vpc[id]
		for _, r := range t.routes {
			destination, err := netip.ParsePrefix(r.DestinationCidrBlock)
			if err != nil || r.GatewayType != "NORMAL_CVM" || !r.enabled() || taken[destination] {
				continue
			}
			gateway, _ := netip.ParseAddr(r.GatewayId)
			routes = append(routes, cloud.Route{Table: id, Destination: destination, Via: e.alive(t.vpc, gateway)})
		}
	}
	return routes
}

// alive returns the address when a machine has it, else the zero Addr.
func (e *Emulator) alive(vpc string, a netip.Addr) netip.Addr {
	if n := e.networks[vpc]; n != nil && n.machines[a] {
		return a
	}
	return netip.Addr{}
}

// change runs f on a copy of the tables and commits it.
func (e *Emulator) change(f func(next tables)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.tables.clone()
	f(next)
	e.commit(next)
}

func (e *Emulator) number() int {
	e.serial++
	return e.serial
}

// AddVPC makes a VPC with its range and added ranges.
func (e *Emulator) AddVPC(id string, ranges ...netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks[id] = &network{
		ranges:   ranges,
		subnets:  map[string]subnet{},
		machines: map[netip.Addr]bool{},
		clusters: map[string]netip.Prefix{},
	}
}

// AddSubnet makes a subnet that uses a route table, or attaches it to another.
func (e *Emulator) AddSubnet(vpc, id string, cidr netip.Prefix, table string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks[vpc].subnets[id] = subnet{cidr, table}
}

// AddMachines starts machines with these private addresses.
func (e *Emulator) AddMachines(vpc string, addresses ...netip.Addr) {
	e.change(func(tables) {
		for _, a := range addresses {
			e.networks[vpc].machines[a] = true
		}
	})
}

// RemoveMachines terminates machines; routes to them stay listed.
func (e *Emulator) RemoveMachines(vpc string, addresses ...netip.Addr) {
	e.change(func(tables) {
		for _, a := range addresses {
			delete(e.networks[vpc].machines, a)
		}
	})
}

// AddCluster makes a managed cluster that owns a pod range of the VPC.
func (e *Emulator) AddCluster(vpc, name string, cidr netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks[vpc].clusters[name] = cidr
}

// AddClusterTable makes a cluster route table, unchecked.
func (e *Emulator) AddClusterTable(name, vpc string, cidr netip.Prefix) {
	e.change(func(next tables) { next.cluster[name] = clusterTable{vpc: vpc, cidr: cidr} })
}

// RemoveClusterTable deletes a cluster route table with its routes.
func (e *Emulator) RemoveClusterTable(name string) {
	e.change(func(next tables) { delete(next.cluster, name) })
}

// AddClusterRoute adds an entry to a cluster route table, unchecked.
func (e *Emulator) AddClusterRoute(table string, destination netip.Prefix, gateway netip.Addr) {
	e.change(func(next tables) {
		t := next.cluster[table]
		t.routes = append(t.routes, clusterRoute{destination, gateway})
		next.cluster[table] = t
	})
}

// ClusterRoutes returns the entries of a cluster route table, as
// "destination gateway", in the order of their creation.
func (e *Emulator) ClusterRoutes(table string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var lines []string
	for _, r := range e.tables.cluster[table].routes {
		lines = append(lines, fmt.Sprintf("%s %s", r.destination, r.gateway))
	}
	return lines
}

// AddTable makes a VPC route table; the first of a VPC is its main one.
func (e *Emulator) AddTable(vpc, id string, tags map[string]string) {
	e.change(func(next tables) {
		isFirst := true
		for _, t := range next.vpc {
			isFirst = isFirst && t.vpc != vpc
		}
		next.vpc[id] = routeTable{vpc: vpc, main: isFirst, tags: tags}
	})
}

// AddRoute adds an entry to a VPC route table, unchecked, and returns its
// RouteItemId. RouteType defaults to USER, Enabled to true.
func (e *Emulator) AddRoute(table string, r Route) string {
	e.change(func(next tables) {
		r = e.numbered(table, r)
		t := next.vpc[table]
		t.routes = append(t.routes, r)
		next.vpc[table] = t
	})
	return r.RouteItemId
}

// numbered fills in what the API itself sets in a new route.
func (e *Emulator) numbered(table string, r Route) Route {
	n := e.number()
	r.RouteId, r.RouteItemId, r.RouteTableId = uint64(n), fmt.Sprintf("rti-%08d", n), table
	r.CreatedTime = e.Clock.Now().UTC().Format("2006-01-02 15:04:05")
	if r.RouteType == "" {
		r.RouteType = "USER"
	}
	if r.Enabled == nil {
		r.Enabled = new(bool)
		*r.Enabled = true
	}
	return r
}

// Routes returns the entries of a VPC route table.
func (e *Emulator) Routes(table string) []Route {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.tables.vpc[table].routes)
}

// Remove takes entries out of every table, cluster tables included, as somebody
// in the console would.
func (e *Emulator) Remove(destination netip.Prefix) {
	e.change(func(next tables) {
		for name, t := range next.cluster {
			t.routes = slices.DeleteFunc(t.routes, func(r clusterRoute) bool { return r.destination == destination })
			next.cluster[name] = t
		}
		for id, t := range next.vpc {
			t.routes = slices.DeleteFunc(t.routes, func(r Route) bool { return r.DestinationCidrBlock == destination.String() })
			next.vpc[id] = t
		}
	})
}
