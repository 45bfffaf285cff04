package azure

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A document is a route table as it was read. What is written back is the same
// text but for our entries: what is left out of a whole-table write is gone, and
// that holds for properties that this program does not know too.
type document struct {
	ref     tableRef
	etag    string
	state   armnetwork.ProvisioningState
	tags    map[string]*string
	subnets []string // ids of those that use the table
	entries []entry

	whole, properties map[string]json.RawMessage
}

// An entry is one route of a table.
type entry struct {
	name  string
	route vpc.Route // without Owner
	kind  armnetwork.RouteNextHopType
	raw   json.RawMessage
}

// parseTable reads a table's JSON.
func parseTable(ref tableRef, body []byte) (*document, error) {
	var table armnetwork.RouteTable
	d := &document{ref: ref}
	bad := func(err error) (*document, error) {
		return nil, vpc.Errorf(vpc.Transient, "%s: the answer is not understood: %w", ref, err)
	}
	if err := json.Unmarshal(body, &table); err != nil {
		return bad(err)
	}
	if err := json.Unmarshal(body, &d.whole); err != nil {
		return bad(err)
	}
	if table.Properties == nil || value(table.Etag) == "" {
		return nil, vpc.Errorf(vpc.Transient, "%s: the answer has no properties or no etag, so a write could not be guarded", ref)
	}
	if err := json.Unmarshal(d.whole["properties"], &d.properties); err != nil {
		return bad(err)
	}
	var routes []json.RawMessage
	if text := d.properties["routes"]; text != nil {
		if err := json.Unmarshal(text, &routes); err != nil {
			return bad(err)
		}
	}
	d.etag, d.tags, d.state = value(table.Etag), table.Tags, value(table.Properties.ProvisioningState)
	for _, s := range table.Properties.Subnets {
		d.subnets = append(d.subnets, value(s.ID))
	}
	for i, r := range table.Properties.Routes {
		d.entries = append(d.entries, entryOf(ref.id, r, routes[i]))
	}
	return d, nil
}

func entryOf(table string, r *armnetwork.Route, raw json.RawMessage) entry {
	e := entry{name: value(r.Name), route: vpc.Route{Table: table, ID: value(r.Name)}, raw: raw}
	p := r.Properties
	if p == nil {
		p = &armnetwork.RoutePropertiesFormat{}
	}
	e.kind = value(p.NextHopType)
	text := value(p.AddressPrefix)
	if d, err := netip.ParsePrefix(text); err == nil && d == d.Masked() {
		e.route.Destination = d
	} else if e.route.Text = text; text == "" { // a service tag is a text as well
		e.route.Text = "route " + e.name
	}
	if e.kind == armnetwork.RouteNextHopTypeVirtualAppliance {
		e.route.NextHop = vpc.NextHop(value(p.NextHopIPAddress))
		if hop, err := netip.ParseAddr(value(p.NextHopIPAddress)); err == nil {
			e.route.NextHop = vpc.NextHop(hop.Unmap().String())
		}
	}
	return e
}

// at returns the indexes of the entries for a destination.
func (d *document) at(destination netip.Prefix) (found []int) {
	for i, e := range d.entries {
		if e.route.Destination == destination {
			found = append(found, i)
		}
	}
	return found
}

// named returns the index of the entry with a name, or -1.
func (d *document) named(name string) int {
	return slices.IndexFunc(d.entries, func(e entry) bool { return strings.EqualFold(e.name, name) })
}

// add appends an entry of ours.
func (d *document) add(r vpc.Route, name string) error {
	return d.set(len(d.entries), r, name)
}

// set makes the entry at an index lead where r does. Other properties of one
// that is there stay.
func (d *document) set(i int, r vpc.Route, name string) error {
	want := armnetwork.Route{Name: &name, Properties: &armnetwork.RoutePropertiesFormat{
		AddressPrefix:    to.Ptr(r.Destination.String()),
		NextHopType:      to.Ptr(armnetwork.RouteNextHopTypeVirtualAppliance),
		NextHopIPAddress: to.Ptr(string(r.NextHop)),
	}}
	raw, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if i < len(d.entries) {
		if raw, err = overlay(d.entries[i].raw, raw); err != nil {
			return err
		}
		d.entries[i] = entryOf(d.ref.id, &want, raw)
		return nil
	}
	d.entries = append(d.entries, entryOf(d.ref.id, &want, raw))
	return nil
}

// overlay writes the fields of one JSON object over those of another.
func overlay(under, over json.RawMessage) (json.RawMessage, error) {
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(over, &b); err != nil {
		return over, nil //nolint:nilerr // not an object: it replaces what is there
	}
	if err := json.Unmarshal(under, &a); err != nil {
		return over, nil //nolint:nilerr // the same
	}
	for name, text := range b {
		merged, err := overlay(a[name], text)
		if err != nil {
			return nil, err
		}
		a[name] = merged
	}
	return json.Marshal(a)
}

func (d *document) remove(i int) { d.entries = slices.Delete(d.entries, i, i+1) }

// encode returns the table's JSON.
func (d *document) encode() ([]byte, error) {
	routes := make([]json.RawMessage, len(d.entries))
	for i, e := range d.entries {
		routes[i] = e.raw
	}
	var err error
	if d.properties["routes"], err = json.Marshal(routes); err != nil {
		return nil, err
	}
	if d.whole["properties"], err = json.Marshal(d.properties); err != nil {
		return nil, err
	}
	return json.Marshal(d.whole)
}

// uses is true when a subnet uses the table.
func (d *document) uses(subnet string) bool {
	return slices.ContainsFunc(d.subnets, func(id string) bool { return strings.EqualFold(id, subnet) })
}
