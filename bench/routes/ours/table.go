package main

import (
	"context"
	"errors"
	"strings"

	"github.com/vpcroute/vpcroute/bench/routes/world"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A table is the emulated cloud as our controller sees it: one table, no marks,
// one change per call.
type table struct{ cloud *world.Cloud }

const tableID = "rtb-bench"

// NextHop is the machine in the node's provider ID, as in clouds that name it so.
func (t table) NextHop(_ context.Context, n vpc.Node, _ vpc.Family) (vpc.NextHop, error) {
	machine := n.ProviderID[strings.LastIndex(n.ProviderID, "/")+1:]
	if machine == "" {
		return "", vpc.Errorf(vpc.Invalid, "node %s has no provider ID", n.Name)
	}
	return vpc.NextHop(machine), nil
}

func (t table) List(ctx context.Context) ([]vpc.Route, error) {
	found, err := t.cloud.List(ctx)
	if err != nil {
		return nil, classified(err)
	}
	list := make([]vpc.Route, len(found))
	for i, r := range found {
		list[i] = vpc.Route{Table: tableID, Destination: r.Destination, NextHop: vpc.NextHop(r.Machine)}
	}
	return list, nil
}

func (t table) Apply(ctx context.Context, changes []vpc.Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = classified(t.change(ctx, c))
	}
	return errs
}

func (t table) change(ctx context.Context, c vpc.Change) error {
	r := world.Route{Destination: c.Route.Destination, Machine: string(c.Route.NextHop)}
	switch c.Op {
	case vpc.Create:
		return t.cloud.Create(ctx, r)
	case vpc.Delete:
		if err := t.cloud.Delete(ctx, r); !errors.Is(err, world.ErrNotFound) {
			return err
		}
		return nil
	default:
		return vpc.Errorf(vpc.Invalid, "no scenario has a node change its machine")
	}
}

func (t table) Limits(context.Context) (vpc.Limits, error) {
	used, most := t.cloud.Quota()
	return vpc.Limits{Tables: []vpc.TableLimits{{Table: tableID, Used: used, Max: most}}, Families: []vpc.Family{vpc.IPv4}}, nil
}

func (t table) Preflight(context.Context) []vpc.Finding { return nil }

// classified says what an error of the cloud means.
func classified(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, world.ErrThrottled):
		return vpc.Errorf(vpc.Throttled, "%w", err)
	case errors.Is(err, world.ErrQuota):
		return vpc.Errorf(vpc.Quota, "%w", err)
	case errors.Is(err, world.ErrTaken):
		return vpc.Errorf(vpc.Exists, "%w", err)
	default:
		return err
	}
}
