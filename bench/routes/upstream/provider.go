package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/vpcroute/vpcroute/bench/routes/world"
)

// A provider is the emulated cloud as upstream's controller sees it. It waits
// its turn before every call, as the better cloud providers do and some do not.
type provider struct {
	cloud *world.Cloud
	turns *rate.Limiter
}

func newProvider(c *world.Cloud, perSecond float64) *provider {
	return &provider{c, rate.NewLimiter(rate.Limit(perSecond), 1)}
}

// ListRoutes lists the routes with the Nodes that they lead to.
func (p *provider) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	if err := p.turns.Wait(ctx); err != nil {
		return nil, err
	}
	found, err := p.cloud.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]*cloudprovider.Route, len(found))
	for i, r := range found {
		node := strings.TrimPrefix(r.Machine, world.Machine(""))
		list[i] = &cloudprovider.Route{Name: r.Machine, TargetNode: types.NodeName(node), DestinationCIDR: r.Destination.String()}
	}
	return list, nil
}

// CreateRoute makes a route.
func (p *provider) CreateRoute(ctx context.Context, _, _ string, r *cloudprovider.Route) error {
	wanted, err := routeOf(r)
	if err != nil {
		return err
	}
	if err := p.turns.Wait(ctx); err != nil {
		return err
	}
	return p.cloud.Create(ctx, wanted)
}

// DeleteRoute removes a route.
func (p *provider) DeleteRoute(ctx context.Context, _ string, r *cloudprovider.Route) error {
	unwanted, err := routeOf(r)
	if err != nil {
		return err
	}
	if err := p.turns.Wait(ctx); err != nil {
		return err
	}
	return p.cloud.Delete(ctx, unwanted)
}

func routeOf(r *cloudprovider.Route) (world.Route, error) {
	dest, err := netip.ParsePrefix(r.DestinationCIDR)
	if err != nil {
		return world.Route{}, fmt.Errorf("destination of the route to %s: %w", r.TargetNode, err)
	}
	return world.Route{Destination: dest, Machine: world.Machine(string(r.TargetNode))}, nil
}
