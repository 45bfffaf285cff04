// Package tencent programs the route tables of Tencent Cloud: either the
// cluster route table of the container service (TKE "global routes"), which
// holds for a whole VPC, or the VPC's own route tables.
//
// It uses the vendor's SDK for the wire, with the SDK's retries and its region
// switch off: a failed call is reported, classed, and never repeated here. It
// must not log and must not read flags or the environment; credentials come in
// through Config and have no printable form.
package tencent

import (
	"context"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// New checks the configuration, reads the tables it names and returns them. It
// refuses tables that belong to another VPC or another range.
func New(ctx context.Context, c Config) (vpc.RouteTable, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	api := newClient(c)
	if c.Mode == GlobalRoute {
		return newGlobalRoute(ctx, c, api)
	}
	return newRouteTables(ctx, c, api)
}
