//go:build !no_gcp

package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
)

func init() { clouds["gcp"] = func() cloud { return &onGCP{} } }

// An onGCP is Google Cloud's part of the flags.
type onGCP struct {
	nextHops string
	config   gcp.Config
}

func (c *onGCP) bind(f *pflag.FlagSet) {
	f.StringVar(&c.config.Project, "gcp-project", "", "`id` of the project that owns the VPC network (with a shared VPC the host project), for example shop-prod-1")
	f.StringVar(&c.config.Network, "gcp-network", "", "`name` of the VPC network, for example prod")
	f.StringVar(&c.nextHops, "gcp-next-hops", string(gcp.Auto), "`way` to name machines in routes: instance, address, or auto (by instance where the network's project owns it)")
	f.StringVar(&c.config.CredentialsFile, "gcp-credentials", "", "`file` with credentials in one of Google's JSON forms; without it the Application Default Credentials are used")
	f.DurationVar(&c.config.CallTimeout, "gcp-timeout", gcp.DefaultCallTimeout, "`time` that one call of the API may take")
	f.DurationVar(&c.config.OperationTimeout, "gcp-operation-timeout", gcp.DefaultOperationTimeout, "`time` that a change may take once the API has accepted it")
	f.StringVar(&c.config.Endpoint.URL, "gcp-endpoint", "", "`URL` of the API in place of https://compute.googleapis.com")
}

func (c *onGCP) open(ctx context.Context, o *options, ranges []netip.Prefix) (vpc.RouteTable, float64, error) {
	config := c.config
	config.NextHops, config.Owner, config.ClusterCIDRs = gcp.NextHopKind(c.nextHops), o.clusterID, ranges
	config.Version = version
	config.OnCall = func(call gcp.Call) { o.onCall(call.Action, call.Duration, call.Err) }
	rate := float64(gcp.DefaultWritesPerSecond)
	if o.qps > 0 {
		rate = o.qps
	}
	config.WritesPerSecond = rate
	table, err := gcp.New(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("--vpc gcp: %w", err)
	}
	return table, rate, nil
}
