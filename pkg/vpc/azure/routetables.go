package azure

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A routeTables is one or more route tables of a subscription.
type routeTables struct {
	api    *client
	config Config
	named  []tableRef
	turn   chan struct{} // holds one token while an Apply is under way

	view     recent[[]*document]
	pair     recent[reading] // what Limits read, for the List after it
	applied  atomic.Int64    // how often an Apply began or ended
	nics     shelf[[]nic]    // by group, or group and scale set
	networks shelf[*armnetwork.VirtualNetwork]

	mu    sync.Mutex
	used  map[string]usage     // by interface id: what nodes were found to use
	asked map[string]time.Time // since when a node is asked for and not well
}

// A reading is what the tables looked like, and what applied was before it.
type reading struct {
	tables  []*document
	applied int64
}

// A usage is the place of a node in the network.
type usage struct{ node, key, subnet string }

func newRouteTables(c Config, api *client) *routeTables {
	t := &routeTables{
		api: api, config: c, turn: make(chan struct{}, 1),
		used: map[string]usage{}, asked: map[string]time.Time{},
	}
	for _, text := range c.Tables {
		ref, _ := c.parseTable(text) // Config.Validate has seen it
		t.named = append(t.named, ref)
	}
	return t
}

// read reads the managed tables.
func (t *routeTables) read(ctx context.Context) (tables []*document, err error) {
	if t.config.TableTag != "" {
		tables, err = t.tagged(ctx)
	} else {
		for _, ref := range t.named {
			d, err := t.api.table(ctx, ref)
			if err != nil {
				return nil, err
			}
			tables = append(tables, d)
		}
	}
	if err == nil {
		t.view.put(tables)
	}
	return tables, err
}

func (t *routeTables) tagged(ctx context.Context) (tables []*document, err error) {
	all, err := t.api.tablesOf(ctx, t.config)
	key, want, _ := strings.Cut(t.config.TableTag, "=")
	for _, d := range all {
		for name, v := range d.tags {
			if strings.EqualFold(name, key) && value(v) == want { // names of tags have no case
				tables = append(tables, d)
			}
		}
	}
	return tables, err
}

// ref finds a managed table by its id.
func (t *routeTables) ref(ctx context.Context, id string) (tableRef, error) {
	refs := t.named
	if t.config.TableTag != "" {
		tables, ok := t.view.get(viewLifetime)
		if !ok {
			var err error
			if tables, err = t.read(ctx); err != nil {
				return tableRef{}, err
			}
		}
		for _, d := range tables {
			refs = append(refs, d.ref)
		}
	}
	for _, ref := range refs {
		if strings.EqualFold(ref.id, id) {
			return ref, nil
		}
	}
	return tableRef{}, vpc.Errorf(vpc.NotFound, "route table %q is not managed", id)
}

// List returns the entries of the managed tables.
func (t *routeTables) List(ctx context.Context) ([]vpc.Route, error) {
	last, ok := t.pair.take(pairLifetime)
	tables := last.tables
	if !ok || ctx.Err() != nil || last.applied != t.applied.Load() {
		var err error
		if tables, err = t.read(ctx); err != nil {
			return nil, err
		}
	}
	var routes []vpc.Route
	for _, d := range tables {
		for _, e := range d.entries {
			r := e.route
			r.Owner = t.owner(e)
			routes = append(routes, r)
		}
	}
	return routes, nil
}

func (t *routeTables) owner(e entry) string {
	return ownerOf(t.config.Owner, e.name, e.route.Destination)
}

func (t *routeTables) isOurs(e entry) bool {
	return e.route.Destination.IsValid() && strings.EqualFold(e.name, nameOf(t.config.Owner, e.route.Destination))
}

// Limits tells how full the managed tables are. Every user-defined route counts.
func (t *routeTables) Limits(ctx context.Context) (vpc.Limits, error) {
	applied := t.applied.Load()
	tables, err := t.read(ctx)
	if err != nil {
		return vpc.Limits{}, err
	}
	t.pair.put(reading{tables, applied})
	limits := vpc.Limits{Families: []vpc.Family{vpc.IPv4, vpc.IPv6}, Batch: t.config.MaxRoutes}
	for _, d := range tables {
		limits.Tables = append(limits.Tables, vpc.TableLimits{Table: d.ref.id, Used: len(d.entries), Max: t.config.MaxRoutes})
	}
	return limits, nil
}
