package aws

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// A network is one VPC with what does not change by itself.
type network struct {
	ranges  []netip.Prefix // the first of IPv4 is the VPC's own, the others were added
	subnets map[string]netip.Prefix
}

// state is everything that calls can change, and machines that come and go.
type state struct {
	tables     map[string]table
	interfaces map[string]Interface
	stopped    map[string]bool // instances
}

type table struct {
	vpc     string
	main    bool
	subnets []string // attached
	tags    map[string]string
	routes  []Route
}

// A Route is an entry of a route table as the API spells it.
type Route struct {
	DestinationCidrBlock     string `xml:"destinationCidrBlock,omitempty"`
	DestinationIpv6CidrBlock string `xml:"destinationIpv6CidrBlock,omitempty"`
	DestinationPrefixListID  string `xml:"destinationPrefixListId,omitempty"`
	GatewayID                string `xml:"gatewayId,omitempty"`
	InstanceID               string `xml:"instanceId,omitempty"`
	InstanceOwnerID          string `xml:"instanceOwnerId,omitempty"`
	NatGatewayID             string `xml:"natGatewayId,omitempty"`
	NetworkInterfaceID       string `xml:"networkInterfaceId,omitempty"`
	TransitGatewayID         string `xml:"transitGatewayId,omitempty"`
	VpcPeeringConnectionID   string `xml:"vpcPeeringConnectionId,omitempty"`
	Origin                   string `xml:"origin,omitempty"`
	State                    string `xml:"state,omitempty"`
}

func (r Route) destination() string {
	return cmp.Or(r.DestinationCidrBlock, r.DestinationIpv6CidrBlock, r.DestinationPrefixListID)
}

// static is true for a route that was made by hand.
func (r Route) static() bool { return r.Origin == byHand }

// The origins of routes.
const (
	withTable  = "CreateRouteTable"
	byHand     = "CreateRoute"
	propagated = "EnableVgwRoutePropagation"
)

// An Interface is a network interface.
type Interface struct {
	ID, Subnet string
	// Instance is what it is attached to; "" is nothing.
	Instance string
	// Device is its index on the instance; 0 is the first.
	Device int
	// Addresses are the private ones of both families.
	Addresses []netip.Addr
	// Check is the source and destination check.
	Check bool
}

func (s state) clone() state {
	c := state{tables: maps.Clone(s.tables), interfaces: maps.Clone(s.interfaces), stopped: maps.Clone(s.stopped)}
	for id, t := range c.tables {
		t.routes, t.subnets = slices.Clone(t.routes), slices.Clone(t.subnets)
		c.tables[id] = t
	}
	return c
}

// alive is true for an interface that packets can reach.
func (s state) alive(id string) bool {
	i, there := s.interfaces[id]
	return there && i.Instance != "" && !s.stopped[i.Instance]
}

// commit makes the next state the present one: reads see it after SeeAfter,
// packets after the frame's EffectDelay.
func (e *Emulator) commit(next state) {
	e.state = next
	if e.options.SeeAfter > 0 {
		e.history.Put(e.Clock.Now(), next.clone(), 2*e.options.SeeAfter)
	}
	if e.Program != nil {
		e.Effect(next.effect())
	}
}

// seen is the state that reads show.
func (e *Emulator) seen() state {
	if e.options.SeeAfter > 0 {
		return e.history.At(e.Clock.Now().Add(-e.options.SeeAfter))
	}
	return e.state
}

// effect is what packets feel.
func (s state) effect() (routes []cloud.Route) {
	for _, id := range slices.Sorted(maps.Keys(s.tables)) {
		for _, r := range s.tables[id].routes {
			destination, err := netip.ParsePrefix(r.destination())
			if err == nil && r.NetworkInterfaceID != "" {
				routes = append(routes, cloud.Route{Table: id, Destination: destination, Via: s.via(r.NetworkInterfaceID, destination)})
			}
		}
	}
	return routes
}

// via is the address of a family at which an interface takes packets for others.
func (s state) via(id string, destination netip.Prefix) netip.Addr {
	i := s.interfaces[id]
	if !s.alive(id) || i.Check {
		return netip.Addr{}
	}
	at := slices.IndexFunc(i.Addresses, func(a netip.Addr) bool { return a.Is4() == destination.Addr().Is4() })
	if at < 0 {
		return netip.Addr{}
	}
	return i.Addresses[at]
}

// change runs f on a copy of the state and commits it.
func (e *Emulator) change(f func(next state)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.state.clone()
	f(next)
	e.commit(next)
}

func (e *Emulator) changeTable(id string, f func(t *table)) {
	e.change(func(next state) {
		t := next.tables[id]
		f(&t)
		next.tables[id] = t
	})
}

// AddVPC makes a VPC with its ranges, at least one of IPv4 in front, and its
// main table.
func (e *Emulator) AddVPC(id, mainTable string, ranges ...netip.Prefix) {
	e.mu.Lock()
	e.networks[id] = &network{ranges: ranges, subnets: map[string]netip.Prefix{}}
	e.mu.Unlock()
	e.addTable(id, mainTable, true, nil)
}

// AddTable makes a route table.
func (e *Emulator) AddTable(vpc, id string, tags map[string]string) { e.addTable(vpc, id, false, tags) }

func (e *Emulator) addTable(vpc, id string, main bool, tags map[string]string) {
	e.change(func(next state) {
		t := table{vpc: vpc, main: main, tags: tags}
		for _, p := range e.networks[vpc].ranges {
			r := Route{GatewayID: "local", Origin: withTable, State: "active"}
			r.setDestination(p)
			t.routes = append(t.routes, r)
		}
		next.tables[id] = t
	})
}

func (r *Route) setDestination(p netip.Prefix) {
	if p.Addr().Is4() {
		r.DestinationCidrBlock = p.String()
	} else {
		r.DestinationIpv6CidrBlock = p.String()
	}
}

// AddSubnet makes a subnet, attached to a table or, with "", to none.
func (e *Emulator) AddSubnet(vpc, id string, cidr netip.Prefix, table string) {
	e.mu.Lock()
	e.networks[vpc].subnets[id] = cidr
	e.mu.Unlock()
	e.Attach(id, table)
}

// Attach attaches a subnet to another table, or with "" to none.
func (e *Emulator) Attach(subnet, tableID string) {
	e.change(func(next state) {
		for id, t := range next.tables {
			t.subnets = slices.DeleteFunc(t.subnets, func(s string) bool { return s == subnet })
			if id == tableID {
				t.subnets = append(t.subnets, subnet)
			}
			next.tables[id] = t
		}
	})
}

// AddInterfaces makes network interfaces, or changes those with the same ids.
func (e *Emulator) AddInterfaces(interfaces ...Interface) {
	e.change(func(next state) {
		for _, i := range interfaces {
			next.interfaces[i.ID] = i
		}
	})
}

// SetCheck switches an interface's source and destination check.
func (e *Emulator) SetCheck(id string, on bool) {
	e.change(func(next state) {
		i := next.interfaces[id]
		i.Check = on
		next.interfaces[id] = i
	})
}

// Check tells whether an interface's source and destination check is on.
func (e *Emulator) Check(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.interfaces[id].Check
}

// Stop stops instances; Start starts them again.
func (e *Emulator) Stop(instances ...string) { e.run(false, instances) }

// Start starts stopped instances.
func (e *Emulator) Start(instances ...string) { e.run(true, instances) }

func (e *Emulator) run(on bool, instances []string) {
	e.change(func(next state) {
		for _, id := range instances {
			if delete(next.stopped, id); !on {
				next.stopped[id] = true
			}
		}
	})
}

// Terminate ends instances; their interfaces go with them.
func (e *Emulator) Terminate(instances ...string) {
	e.change(func(next state) {
		maps.DeleteFunc(next.interfaces, func(_ string, i Interface) bool { return slices.Contains(instances, i.Instance) })
	})
}

// AddRoute adds an entry to a table, unchecked. Its origin is CreateRoute when
// not given.
func (e *Emulator) AddRoute(tableID string, r Route) {
	r.Origin = cmp.Or(r.Origin, byHand)
	e.changeTable(tableID, func(t *table) { t.routes = append(t.routes, r) })
}

// Remove takes the entries for a destination out of a table, as somebody in the
// console would.
func (e *Emulator) Remove(tableID, destination string) {
	e.changeTable(tableID, func(t *table) {
		t.routes = slices.DeleteFunc(t.routes, func(r Route) bool { return r.destination() == destination })
	})
}

// Routes returns the entries of a table, with their states.
func (e *Emulator) Routes(tableID string) []Route {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.described(e.state, e.state.tables[tableID].routes)
}
