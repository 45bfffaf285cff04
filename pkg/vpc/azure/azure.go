// Package azure programs the route tables (user-defined routes) of Azure virtual
// networks: every change that is due goes into one guarded write of the whole
// table, because the network provider refuses concurrent changes to one table.
//
// It uses the vendor's SDK for the wire, with the SDK's retries off: a failed
// call is reported, classed, and repeated here only where another writer came
// between reading a table and writing it. It must not log and must not read flags
// or the environment (the vendor's credential chain reads its own variables);
// secrets have no printable form.
package azure

import (
	"context"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// New checks the configuration, reads the tables it names and returns them.
func New(ctx context.Context, c Config) (vpc.RouteTable, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	api, err := newClient(c)
	if err != nil {
		return nil, vpc.Errorf(vpc.Invalid, "set up the client: %w", err)
	}
	t := newRouteTables(c, api)
	tables, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	if len(tables) == 0 {
		return nil, vpc.Errorf(vpc.Invalid, "table tag %q: no route table of resource group %s has it", c.TableTag, c.ResourceGroup)
	}
	return t, nil
}
