package kube

import (
	"context"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A lead says whether this process may write, and for how long.
type lead interface {
	Leads() error
	Bound(ctx context.Context) (context.Context, context.CancelFunc)
}

// A fenced table lets no write pass once this process does not lead any more.
type fencedTable struct {
	vpc.RouteTable
	lead lead
}

// FenceTable lets no write begin once this process does not lead, and breaks off
// one under way before another process can.
func FenceTable(table vpc.RouteTable, lead lead) vpc.RouteTable {
	return &fencedTable{table, lead}
}

// NextHop asks only while this process leads: some clouds set a machine up for
// forwarding when they are asked for it.
func (f *fencedTable) NextHop(ctx context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	if err := f.lead.Leads(); err != nil {
		return "", err
	}
	ctx, cancel := f.lead.Bound(ctx)
	defer cancel()
	return f.RouteTable.NextHop(ctx, node, family)
}

// Apply writes only while this process leads. A call of many changes may be many
// calls of the cloud: those that are still to come when the process no longer
// leads are not made.
func (f *fencedTable) Apply(ctx context.Context, changes []vpc.Change) []error {
	if err := f.lead.Leads(); err != nil {
		return repeated(err, len(changes))
	}
	ctx, cancel := f.lead.Bound(ctx)
	defer cancel()
	return f.RouteTable.Apply(ctx, changes)
}

type fencedLedger struct {
	routes.Ledger
	leads func() error
}

// FenceLedger checks leads right before every write.
func FenceLedger(ledger routes.Ledger, leads func() error) routes.Ledger {
	return &fencedLedger{ledger, leads}
}

// Record writes only while this process leads.
func (f *fencedLedger) Record(ctx context.Context, entries []routes.Entry) []error {
	if err := f.leads(); err != nil {
		return repeated(err, len(entries))
	}
	return f.Ledger.Record(ctx, entries)
}

// Forget writes only while this process leads.
func (f *fencedLedger) Forget(ctx context.Context, entries []routes.Entry) []error {
	if err := f.leads(); err != nil {
		return repeated(err, len(entries))
	}
	return f.Ledger.Forget(ctx, entries)
}

func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
