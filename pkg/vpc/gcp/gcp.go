// Package gcp programs the static routes of one VPC network of Google Cloud. A
// network has no route table object: its routes are resources of the project,
// each with a name of its own, and the network is the table.
//
// It uses Google's SDK for the wire, which repeats no call of this API, and
// repeats none itself: a failed call is reported and classed. It must not log
// and must not read flags; of the environment the SDK alone reads what names
// the Application Default Credentials.
package gcp

import (
	"context"
	"fmt"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// New checks the configuration, looks for the network and returns its routes.
func New(ctx context.Context, c Config) (vpc.RouteTable, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	api, err := newClient(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, err := api.network(ctx, c.Network); err != nil {
		return nil, fmt.Errorf("network %s of project %s: %w", c.Network, c.Project, err)
	}
	return &network{config: c, api: api}, nil
}
