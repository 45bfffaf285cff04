package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A nic is a network interface.
type nic struct {
	id, name, group string
	machine         string // id of the machine it is attached to
	uniform         bool   // of a uniform scale set: read only
	forwards        bool
	addresses       []nicAddress
}

type nicAddress struct {
	address netip.Addr
	subnet  string // id
}

func nicsOf(found []*armnetwork.Interface, group string, uniform bool) (nics []nic) {
	for _, x := range found {
		n := nic{id: value(x.ID), name: value(x.Name), group: group, uniform: uniform}
		p := x.Properties
		if p == nil {
			continue
		}
		n.forwards = value(p.EnableIPForwarding)
		if p.VirtualMachine != nil {
			n.machine = value(p.VirtualMachine.ID)
		}
		for _, c := range p.IPConfigurations {
			if c.Properties == nil || c.Properties.Subnet == nil {
				continue
			}
			if a, err := netip.ParseAddr(value(c.Properties.PrivateIPAddress)); err == nil {
				n.addresses = append(n.addresses, nicAddress{a.Unmap(), value(c.Properties.Subnet.ID)})
			}
		}
		nics = append(nics, n)
	}
	return nics
}

// find returns the interface of a machine that has the first of the addresses
// that any has.
func find(nics []nic, m machine, addresses []netip.Addr) (nic, nicAddress, bool) {
	for _, a := range addresses {
		for _, n := range nics {
			if m.id != "" && !strings.EqualFold(n.machine, m.id) {
				continue
			}
			if i := slices.IndexFunc(n.addresses, func(x nicAddress) bool { return x.address == a }); i >= 0 {
				return n, n.addresses[i], true
			}
		}
	}
	return nic{}, nicAddress{}, false
}

// NextHop returns the node's internal address of the family, which has to be on
// an interface of its machine. An interface that does not forward, or a subnet
// that uses another table, is an error of class Invalid that says so: packets
// would not arrive.
func (t *routeTables) NextHop(ctx context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	addresses, err := addressesOf(node, family)
	if err != nil {
		return "", err
	}
	m, err := t.config.machineOf(node)
	if err != nil {
		return "", err
	}
	n, at, err := t.locate(ctx, node, m, addresses)
	if err != nil {
		return "", fmt.Errorf("node %s: %w", node.Name, err)
	}
	if err := t.checkAttached(ctx, at); err != nil {
		return "", fmt.Errorf("node %s: %w", node.Name, err)
	}
	if err := t.ensureForwarding(ctx, m, n); err != nil {
		return "", fmt.Errorf("node %s: %w", node.Name, err)
	}
	return vpc.NextHop(at.address.String()), nil
}

// key names what one reading of interfaces covers.
func (m machine) key() string { return strings.ToLower(m.group + "/" + m.scaleSet) }

func (t *routeTables) interfaces(ctx context.Context, key string, age time.Duration) ([]nic, error) {
	return t.nics.get(key, age, func() ([]nic, error) {
		group, scaleSet, _ := strings.Cut(key, "/")
		return t.api.interfacesOf(ctx, group, scaleSet)
	})
}

// locate finds the interface that has the node's address. What is known serves
// as long as it says yes. A node that it says no to is worth a new look, unless
// there was one since the node was first asked for.
func (t *routeTables) locate(ctx context.Context, node vpc.Node, m machine, addresses []netip.Addr) (nic, nicAddress, error) {
	who := node.ProviderID + fmt.Sprint(addresses)
	for _, age := range []time.Duration{knownLifetime, t.doubt(who)} {
		nics, err := t.interfaces(ctx, m.key(), age)
		if err != nil {
			return nic{}, nicAddress{}, err
		}
		if n, at, ok := find(nics, m, addresses); ok && (n.forwards || age != knownLifetime) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if n.forwards {
				delete(t.asked, who)
			}
			t.used[strings.ToLower(n.id)] = usage{node.Name, m.key(), at.subnet}
			return n, at, nil
		}
	}
	where := "resource group " + m.group
	if m.scaleSet != "" {
		where = "scale set " + m.scaleSet
	}
	if m.id == "" {
		return nic{}, nicAddress{}, vpc.Errorf(vpc.NotFound, "it has no provider ID, and no network interface of %s has one of its addresses %v: give it its provider ID, or exclude the node", where, addresses)
	}
	return nic{}, nicAddress{}, vpc.Errorf(vpc.NotFound, "no network interface of %s that is attached to %s has one of its addresses %v", where, lastName(m.id), addresses)
}

// doubt is how old what is known may be to say no to a node.
func (t *routeTables) doubt(who string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, ok := t.asked[who]
	if !ok {
		first = time.Now()
		t.asked[who] = first
	}
	return min(max(time.Since(first), newcomerLifetime), doubtLifetime)
}

// checkAttached sees that the subnet of an address uses a managed table.
func (t *routeTables) checkAttached(ctx context.Context, at nicAddress) error {
	for _, age := range []time.Duration{viewLifetime, newcomerLifetime} {
		tables, ok := t.view.get(age)
		if !ok {
			var err error
			if tables, err = t.read(ctx); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(tables, func(d *document) bool { return d.uses(at.subnet) }) {
			return nil
		}
	}
	uses := t.tableOf(ctx, at.subnet)
	return vpc.Errorf(vpc.Invalid, "its address %s is in subnet %s, which uses %s: attach the subnet to a managed table, or manage that table too", at.address, shortSubnet(at.subnet), uses)
}

// tableOf says in words which table a subnet uses.
func (t *routeTables) tableOf(ctx context.Context, subnet string) string {
	network, err := t.network(ctx, networkOf(subnet), doubtLifetime)
	if err != nil {
		return fmt.Sprintf("a table that cannot be told (%v)", err)
	}
	for _, s := range network.Properties.Subnets {
		if strings.EqualFold(value(s.ID), subnet) {
			return usedBy(s)
		}
	}
	return "a table that cannot be told (its network does not list it)"
}

// usedBy says in words which table a subnet uses.
func usedBy(s *armnetwork.Subnet) string {
	if s.Properties == nil || s.Properties.RouteTable == nil {
		return "no route table"
	}
	return fmt.Sprintf("route table %s, which is not managed", lastName(value(s.Properties.RouteTable.ID)))
}

func (t *routeTables) network(ctx context.Context, id string, age time.Duration) (*armnetwork.VirtualNetwork, error) {
	return t.networks.get(strings.ToLower(id), age, func() (*armnetwork.VirtualNetwork, error) {
		n, err := t.api.network(ctx, id)
		if err == nil && n.Properties == nil {
			err = vpc.Errorf(vpc.Transient, "virtual network %s: the answer has no properties", lastName(id))
		}
		return n, err
	})
}

// ensureForwarding sees that an interface forwards, and switches that on where
// it is allowed to.
func (t *routeTables) ensureForwarding(ctx context.Context, m machine, n nic) error {
	switch {
	case n.forwards:
		return nil
	case n.uniform:
		return vpc.Errorf(vpc.Invalid, "IP forwarding is off on network interface %s: %s", n.name, fixScaleSet(m.scaleSet))
	case !t.config.SetForwarding:
		return vpc.Errorf(vpc.Invalid, "IP forwarding is off on network interface %s: %s", n.name, fixForwarding)
	}
	err := t.switchOn(ctx, n)
	if err != nil {
		return fmt.Errorf("IP forwarding is off on network interface %s and cannot be switched on: %w", n.name, err)
	}
	t.nics.item(m.key()).forget()
	return nil
}

const fixForwarding = "switch it on (az network nic update --ip-forwarding true), or allow the controller to (--azure-set-forwarding)"

func fixScaleSet(name string) string {
	return fmt.Sprintf("set enableIPForwarding in the network profile of scale set %s and upgrade its instances", name)
}

// switchOn writes an interface back as it was read but for the switch. A write
// that meets another's is prepared anew.
func (t *routeTables) switchOn(ctx context.Context, n nic) (err error) {
	for range maxRaces {
		etag, body, err := t.api.rawInterface(ctx, n.group, n.name)
		if err != nil {
			return err
		}
		if body, err = overlay(body, json.RawMessage(`{"properties":{"enableIPForwarding":true}}`)); err != nil {
			return err
		}
		if err = t.api.putInterface(ctx, n.group, n.name, etag, body); !isStale(err) {
			return err
		}
	}
	return vpc.Errorf(vpc.InProgress, "it changed %d times while this write was prepared", maxRaces)
}
