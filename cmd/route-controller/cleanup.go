package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/kube"
)

// exitLeft is the exit code of a cleanup that left routes of ours.
const exitLeft exitCode = 3

// cleaned is the printed form of a cleaning.
type cleaned struct {
	Deleted   int               `json:"deleted"`
	Forgotten int               `json:"ledgerEntriesForgotten"`
	Left      []leftRoute       `json:"left"`
	Foreign   []plannedConflict `json:"foreign"`
}

type leftRoute struct {
	Table       string `json:"table"`
	Destination string `json:"destination"`
	NextHop     string `json:"nextHop"`
	Error       string `json:"error"`
}

// cleanup removes our routes and prints what is left.
func cleanup(ctx context.Context, s settings, out io.Writer) (err error) {
	if s.cluster {
		return s.cleanupCluster(ctx, out)
	}
	ledger, closeLedger, err := s.openLedger()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLedger()) }()
	s.config.Ledger = ledger
	return s.clean(ctx, out)
}

// cleanupCluster removes our routes and what we said about them in the cluster,
// as its leader.
func (s settings) cleanupCluster(ctx context.Context, out io.Writer) error {
	client, err := s.connect()
	if err != nil {
		return err
	}
	return s.alone(ctx, client, func(ctx context.Context, ledger routes.Ledger, leader *kube.Leader) error {
		s.config.Ledger = ledger
		s.config.Table = kube.FenceTable(s.config.Table, leader)
		return errors.Join(s.clean(ctx, out), client.ClearConditions(ctx))
	})
}

func (s settings) clean(ctx context.Context, out io.Writer) error {
	done, err := routes.Cleanup(ctx, s.config)
	if err := errors.Join(printCleaned(out, newCleaned(done), s.json), err); err != nil {
		return err
	}
	if len(done.Left) > 0 {
		return exitLeft
	}
	return nil
}

func newCleaned(done routes.Cleaning) cleaned {
	out := cleaned{Deleted: done.Deleted, Forgotten: done.Forgotten, Left: []leftRoute{}, Foreign: []plannedConflict{}}
	for _, l := range done.Left {
		out.Left = append(out.Left, leftRoute{l.Route.Table, destination(l.Route), string(l.Route.NextHop), l.Err.Error()})
	}
	for _, c := range done.Foreign {
		out.Foreign = append(out.Foreign, plannedConflict{c.Route.Table, destination(c.Route), c.Route.NextHop, "", c.Reason})
	}
	return out
}

func printCleaned(out io.Writer, c cleaned, asJSON bool) error {
	if asJSON {
		return printJSON(out, c)
	}
	for _, l := range c.Left {
		fmt.Fprintf(out, "left: %s to %s in table %s: %s\n", l.Destination, l.NextHop, l.Table, l.Error)
	}
	for _, f := range c.Foreign {
		fmt.Fprintf(out, "not ours: %s\n", f.Reason)
	}
	_, err := fmt.Fprintf(out, "%d of our routes deleted, %d left; %d ledger entries forgotten\n", c.Deleted, len(c.Left), c.Forgotten)
	return err
}
