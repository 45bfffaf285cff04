package kube

import (
	"context"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A fenced table lets no write pass once this process does not lead any more.
type fencedTable struct {
	vpc.RouteTable
	leads func() error
}

// FenceTable checks leads right before every write.
func FenceTable(table vpc.RouteTable, leads func() error) vpc.RouteTable {
	return &fencedTable{table, leads}
}

// Apply writes only while this process leads.
func (f *fencedTable) Apply(ctx context.Context, changes []vpc.Change) []error {
	if err := f.leads(); err != nil {
		return repeated(err, len(changes))
	}
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
