package azure

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// A table is a route table.
type table struct {
	id, name string
	body     map[string]any // as it was written, without what is read only
	version  int
	state    string
	routes   []Route // of body, read
}

// A Route is an entry of a route table as the API spells it.
type Route struct {
	Name             string
	AddressPrefix    string
	NextHopType      string
	NextHopIPAddress string
}

// An Interface is a network interface.
type Interface struct {
	// Group and Name name it; in a scale set, Group is the scale set's.
	Group, Name string
	// Machine is the id of the machine that it is attached to, "" for none.
	Machine string
	// ScaleSet is the uniform scale set of its machine, "" for none.
	ScaleSet string
	// Subnet is the id of its subnet.
	Subnet string
	// Addresses are its private ones.
	Addresses []netip.Addr
	// Forwarding is whether it forwards packets.
	Forwarding bool
	// SecurityGroup is whether it has a security group.
	SecurityGroup bool
}

type iface struct {
	Interface
	id      string
	body    map[string]any // as it was written last, nil for never
	version int
}

func (n *iface) forwards() bool { return n.Forwarding }

type network struct {
	id, group, name string
	ranges          []netip.Prefix
	subnets         []*subnet
	peers           map[string][]netip.Prefix
}

type subnet struct {
	id, name string
	ranges   []netip.Prefix
	table    string // id, "" for none
}

// An operation is what a write of a table started.
type operation struct {
	table string
	polls int
	end   time.Time
	fail  *cloud.Answer
	done  bool
}

// progress ends the operations that are due. Every call counts as a poll, so
// that an operation whose answer was lost ends as well.
func (e *Emulator) progress() {
	ended := false
	for _, o := range e.operations {
		if o.done {
			continue
		}
		if o.polls--; o.polls >= 0 || e.Clock.Now().Before(o.end) {
			continue
		}
		o.done, ended = true, true
		if t := e.tables[o.table]; t != nil {
			t.version++
			t.state = "Succeeded"
			if o.fail != nil {
				t.state = "Failed"
			}
		}
	}
	if ended {
		e.commit()
	}
}

// commit puts the tables into effect.
func (e *Emulator) commit() {
	var routes []cloud.Route
	for _, id := range slices.Sorted(maps.Keys(e.tables)) {
		t := e.tables[id]
		if len(e.subnetsOf(id)) == 0 {
			continue
		}
		for _, r := range t.routes {
			destination, err := netip.ParsePrefix(r.AddressPrefix)
			if err != nil || r.NextHopType != "VirtualAppliance" {
				continue
			}
			hop, _ := netip.ParseAddr(r.NextHopIPAddress)
			routes = append(routes, cloud.Route{Table: t.name, Destination: destination, Via: e.alive(hop)})
		}
	}
	e.Effect(routes)
}

// subnetsOf are the subnets that use a table.
func (e *Emulator) subnetsOf(table string) (found []*subnet) {
	for _, id := range slices.Sorted(maps.Keys(e.networks)) {
		for _, s := range e.networks[id].subnets {
			if strings.EqualFold(s.table, table) {
				found = append(found, s)
			}
		}
	}
	return found
}

func (e *Emulator) hasGroup(group string) bool {
	has := func(id string) bool { return strings.Contains(strings.ToLower(id), "/resourcegroups/"+group+"/") }
	for id := range e.tables {
		if has(id) {
			return true
		}
	}
	for _, n := range e.interfaces {
		if strings.EqualFold(n.Group, group) {
			return true
		}
	}
	for id := range e.networks {
		if has(id) {
			return true
		}
	}
	return false
}

// ID is a resource's id, for example ID("prod", "Microsoft.Network/routeTables", "routes").
func (e *Emulator) ID(group, kind, name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s", e.options.Subscription, group, kind, name)
}

// SubnetID is the id of a subnet.
func (e *Emulator) SubnetID(group, network, name string) string {
	return e.ID(group, "Microsoft.Network/virtualNetworks", network) + "/subnets/" + name
}

// AddTable makes an empty route table.
func (e *Emulator) AddTable(group, name string, tags map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := e.ID(group, "Microsoft.Network/routeTables", name)
	body := map[string]any{"location": e.options.Location, "properties": map[string]any{"disableBgpRoutePropagation": false}}
	if tags != nil {
		body["tags"] = tags
	}
	e.tables[strings.ToLower(id)] = &table{id: id, name: name, body: body, version: e.number(), state: "Succeeded"}
}

// RemoveTable deletes a route table.
func (e *Emulator) RemoveTable(group, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tables, strings.ToLower(e.ID(group, "Microsoft.Network/routeTables", name)))
	e.commit()
}

func (e *Emulator) find(name string) *table {
	for _, id := range slices.Sorted(maps.Keys(e.tables)) {
		if strings.EqualFold(e.tables[id].name, name) {
			return e.tables[id]
		}
	}
	panic("azure: no route table " + name)
}

// Edit changes a table's JSON behind everyone's back, unchecked, as another
// program would.
func (e *Emulator) Edit(name string, change func(body map[string]any)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.find(name)
	change(t.body)
	t.routes = routesOf(t.body)
	t.version = e.number()
	e.commit()
}

// Body returns a table's JSON as it was written last, with its routes.
func (e *Emulator) Body(name string) map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.find(name).body)
}

// SetState sets a table's provisioning state, for example "Failed".
func (e *Emulator) SetState(name, state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.find(name)
	t.state, t.version = state, e.number()
}

// AddRoute adds an entry to a table, unchecked.
func (e *Emulator) AddRoute(name string, r Route) {
	e.Edit(name, func(body map[string]any) {
		p := body["properties"].(map[string]any)
		all, _ := p["routes"].([]any)
		content := map[string]any{"nextHopType": r.NextHopType}
		if r.AddressPrefix != "" {
			content["addressPrefix"] = r.AddressPrefix
		}
		if r.NextHopIPAddress != "" {
			content["nextHopIpAddress"] = r.NextHopIPAddress
		}
		p["routes"] = append(slices.Clone(all), map[string]any{"name": r.Name, "properties": content})
	})
}

// Routes returns the entries of a table.
func (e *Emulator) Routes(name string) []Route {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.find(name).routes)
}

// AddNetwork makes a virtual network with its ranges.
func (e *Emulator) AddNetwork(group, name string, ranges ...netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := e.ID(group, "Microsoft.Network/virtualNetworks", name)
	old := e.networks[strings.ToLower(id)]
	n := &network{id: id, group: group, name: name, ranges: ranges, peers: map[string][]netip.Prefix{}}
	if old != nil {
		n.subnets, n.peers = old.subnets, old.peers
	}
	e.networks[strings.ToLower(id)] = n
}

// AddSubnet makes a subnet that uses a table, named by its id, or none.
func (e *Emulator) AddSubnet(group, networkName, name, table string, ranges ...netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.networks[strings.ToLower(e.ID(group, "Microsoft.Network/virtualNetworks", networkName))]
	n.subnets = slices.DeleteFunc(n.subnets, func(s *subnet) bool { return s.name == name })
	n.subnets = append(n.subnets, &subnet{id: n.id + "/subnets/" + name, name: name, ranges: ranges, table: strings.ToLower(table)})
	e.commit()
}

// Attach has a subnet use another table, or none.
func (e *Emulator) Attach(subnetID, table string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.networks {
		for _, s := range n.subnets {
			if strings.EqualFold(s.id, subnetID) {
				s.table = strings.ToLower(table)
			}
		}
	}
	e.commit()
}

// AddPeering connects a network to another with these ranges.
func (e *Emulator) AddPeering(group, networkName, name string, ranges ...netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks[strings.ToLower(e.ID(group, "Microsoft.Network/virtualNetworks", networkName))].peers[name] = ranges
}

// AddInterface makes a network interface.
func (e *Emulator) AddInterface(n Interface) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := e.ID(n.Group, "Microsoft.Network/networkInterfaces", n.Name)
	if n.ScaleSet != "" {
		id = n.Machine + "/networkInterfaces/" + n.Name
	}
	e.interfaces[strings.ToLower(id)] = &iface{Interface: n, id: id, version: e.number()}
	e.commit()
}

// AddMachine starts a virtual machine with one interface that forwards, and
// returns its provider ID.
func (e *Emulator) AddMachine(group, name, subnetID string, addresses ...netip.Addr) string {
	id := e.ID(group, "Microsoft.Compute/virtualMachines", name)
	e.AddInterface(Interface{Group: group, Name: name + "-nic", Machine: id, Subnet: subnetID, Addresses: addresses, Forwarding: true})
	return "azure://" + id
}

// AddInstance starts an instance of a uniform scale set with one interface that
// forwards, and returns its provider ID.
func (e *Emulator) AddInstance(group, scaleSet string, number int, subnetID string, addresses ...netip.Addr) string {
	id := fmt.Sprintf("%s/virtualMachines/%d", e.ID(group, "Microsoft.Compute/virtualMachineScaleSets", scaleSet), number)
	e.AddInterface(Interface{
		Group: group, Name: scaleSet + "-nic", Machine: id, ScaleSet: scaleSet, Subnet: subnetID, Addresses: addresses, Forwarding: true,
	})
	return "azure://" + id
}

// RemoveMachine terminates a machine by its provider ID; routes to it stay.
func (e *Emulator) RemoveMachine(providerID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := strings.TrimPrefix(providerID, "azure://")
	maps.DeleteFunc(e.interfaces, func(_ string, n *iface) bool { return strings.EqualFold(n.Machine, id) })
	e.commit()
}

// SetForwarding switches an interface's forwarding by its name.
func (e *Emulator) SetForwarding(name string, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.interfaces {
		if n.Name == name {
			n.Forwarding, n.version = on, e.number()
		}
	}
	e.commit()
}

// Forwards says whether an interface forwards.
func (e *Emulator) Forwards(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.interfaces {
		if n.Name == name {
			return n.Forwarding
		}
	}
	return false
}
