package tencent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	vpcapi "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc/v20170312"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	subnetLifetime = 5 * time.Minute  // how long the subnets are taken for known
	newSubnetAfter = 30 * time.Second // how soon they are read again for an address in none of them
	quotaLifetime  = 10 * time.Minute // how long a table's maximum is taken for known
)

// A routeTables is one or more route tables of a VPC.
type routeTables struct {
	api    *client
	config Config

	view  recent[[]*vpcapi.RouteTable] // all tables of the VPC
	pair  recent[[]*vpcapi.RouteTable] // what Limits read, for the List after it
	quota recent[int]                  // routes that a table takes
	nets  recent[[]subnet]
	fetch sync.Mutex // one reading of the subnets at a time

	mu    sync.Mutex
	inUse map[string]bool // subnets in which nodes were seen, for Preflight
}

// A subnet is a range of the VPC and the table that its machines use.
type subnet struct {
	id    string
	cidr  netip.Prefix
	table string
}

func newRouteTables(ctx context.Context, c Config, api *client) (*routeTables, error) {
	t := &routeTables{api: api, config: c, inUse: map[string]bool{}}
	if c.VpcID == "" {
		named, err := api.routeTables(ctx, "", c.Tables...)
		if err != nil {
			return nil, fmt.Errorf("route tables %v: %w", c.Tables, err)
		}
		for _, x := range named {
			t.config.VpcID = value(x.VpcId)
		}
	}
	tables, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.checkSelection(tables); err != nil {
		return nil, err
	}
	return t, nil
}

// checkSelection refuses names and tags that fit no table of the VPC.
func (t *routeTables) checkSelection(tables []*vpcapi.RouteTable) error {
	for _, id := range t.config.Tables {
		if !slices.ContainsFunc(tables, func(x *vpcapi.RouteTable) bool { return value(x.RouteTableId) == id }) {
			return vpc.Errorf(vpc.Invalid, "route table %s: not in VPC %s: all tables must be of one VPC", id, t.config.VpcID)
		}
	}
	if tag := t.config.TableTag; tag != "" && len(t.managed(tables)) == 0 {
		return vpc.Errorf(vpc.Invalid, "table tag %q: no table of VPC %s has it", tag, t.config.VpcID)
	}
	return nil
}

// read reads all tables of the VPC with their routes and subnets.
func (t *routeTables) read(ctx context.Context) ([]*vpcapi.RouteTable, error) {
	tables, err := t.api.routeTables(ctx, t.config.VpcID)
	if err != nil {
		return nil, fmt.Errorf("VPC %s: %w", t.config.VpcID, err)
	}
	t.view.put(tables)
	return tables, nil
}

// recentTables returns the tables as they were read during the past minute, or
// reads them.
func (t *routeTables) recentTables(ctx context.Context) ([]*vpcapi.RouteTable, error) {
	if tables, ok := t.view.get(viewLifetime); ok {
		return tables, nil
	}
	return t.read(ctx)
}

// managed picks the tables that are written to.
func (t *routeTables) managed(tables []*vpcapi.RouteTable) []*vpcapi.RouteTable {
	return slices.DeleteFunc(slices.Clone(tables), func(x *vpcapi.RouteTable) bool { return !t.manages(x) })
}

func (t *routeTables) manages(x *vpcapi.RouteTable) bool {
	switch {
	case len(t.config.Tables) > 0:
		return slices.Contains(t.config.Tables, value(x.RouteTableId))
	case t.config.TableTag != "":
		return slices.ContainsFunc(x.TagSet, func(tag *vpcapi.Tag) bool {
			return value(tag.Key)+"="+value(tag.Value) == t.config.TableTag
		})
	}
	ours := slices.ContainsFunc(x.RouteSet, func(e *vpcapi.Route) bool { return routeOf("", e).Owner == t.config.Owner })
	return len(x.AssociationSet) > 0 || ours
}

// NextHop returns the node's internal address that lies in a subnet of the VPC.
// Where the tables are named or tagged, a node whose subnet uses another table
// is an error of class Invalid that names both: its pods could not send.
func (t *routeTables) NextHop(ctx context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	addresses, err := addressesOf(node, family)
	if err != nil {
		return "", err
	}
	address, net, err := t.locate(ctx, addresses)
	if err != nil {
		return "", fmt.Errorf("node %s: %w", node.Name, err)
	}
	t.mu.Lock()
	t.inUse[net.id] = true
	t.mu.Unlock()
	if len(t.config.Tables) == 0 && t.config.TableTag == "" {
		return vpc.NextHop(address.String()), nil
	}
	tables, err := t.recentTables(ctx)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(t.managed(tables), func(x *vpcapi.RouteTable) bool { return value(x.RouteTableId) == net.table }) {
		return "", vpc.Errorf(vpc.Invalid, "node %s: its address %s is in subnet %s, which uses route table %s, and that one is not managed: attach the subnet to a managed table, or manage %s too", node.Name, address, net.id, net.table, net.table)
	}
	return vpc.NextHop(address.String()), nil
}

// locate finds the first address that lies in a subnet of the VPC.
func (t *routeTables) locate(ctx context.Context, addresses []netip.Addr) (netip.Addr, subnet, error) {
	for _, age := range []time.Duration{subnetLifetime, newSubnetAfter} {
		subnets, err := t.subnets(ctx, age)
		if err != nil {
			return netip.Addr{}, subnet{}, err
		}
		for _, a := range addresses {
			i := slices.IndexFunc(subnets, func(s subnet) bool { return s.cidr.Contains(a) })
			if i >= 0 {
				return a, subnets[i], nil
			}
		}
	}
	return netip.Addr{}, subnet{}, vpc.Errorf(vpc.NotFound, "none of its internal addresses %v is in a subnet of VPC %s: exclude the node, or correct the VPC id", addresses, t.config.VpcID)
}

// subnets returns the subnets, read no longer than age ago.
func (t *routeTables) subnets(ctx context.Context, age time.Duration) ([]subnet, error) {
	t.fetch.Lock()
	defer t.fetch.Unlock()
	if known, ok := t.nets.get(age); ok {
		return known, nil
	}
	found, err := t.api.subnets(ctx, t.config.VpcID)
	if err != nil {
		return nil, err
	}
	var subnets []subnet
	for _, s := range found {
		if cidr, err := netip.ParsePrefix(value(s.CidrBlock)); err == nil {
			subnets = append(subnets, subnet{value(s.SubnetId), cidr, value(s.RouteTableId)})
		}
	}
	t.nets.put(subnets)
	return subnets, nil
}

// List returns the entries of the managed tables.
func (t *routeTables) List(ctx context.Context) ([]vpc.Route, error) {
	tables, ok := t.pair.take(pairLifetime)
	if !ok || ctx.Err() != nil {
		var err error
		if tables, err = t.read(ctx); err != nil {
			return nil, err
		}
	}
	var routes []vpc.Route
	for _, x := range t.managed(tables) {
		for _, e := range x.RouteSet {
			routes = append(routes, routeOf(value(x.RouteTableId), e))
		}
	}
	return routes, nil
}

// Limits tells how full the managed tables are.
func (t *routeTables) Limits(ctx context.Context) (vpc.Limits, error) {
	tables, err := t.read(ctx)
	if err != nil {
		return vpc.Limits{}, err
	}
	most, err := t.maxRoutes(ctx)
	if err != nil {
		return vpc.Limits{}, err
	}
	t.pair.put(tables)
	limits := vpc.Limits{Families: []vpc.Family{vpc.IPv4}, Batch: t.config.BatchSize}
	for _, x := range t.managed(tables) {
		limits.Tables = append(limits.Tables, vpc.TableLimits{Table: value(x.RouteTableId), Used: countUsed(x.RouteSet), Max: most})
	}
	return limits, nil
}

func (t *routeTables) maxRoutes(ctx context.Context) (int, error) {
	if most, ok := t.quota.get(quotaLifetime); ok {
		return most, nil
	}
	most, err := t.api.maxRoutes(ctx)
	if err == nil {
		t.quota.put(most)
	}
	return most, err
}

// countUsed counts the entries that count against a table's maximum.
func countUsed(entries []*vpcapi.Route) (n int) {
	for _, e := range entries {
		if value(e.RouteType) == userRoute {
			n++
		}
	}
	return n
}
