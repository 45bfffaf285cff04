package routes

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Preview is what an Engine would do, and why it would not do more.
type Preview struct {
	vpc.Diff
	// Routes are the routes that are not, and will not be, as their Nodes ask.
	Routes []RouteStatus
	// Tables says how full the tables are.
	Tables []vpc.TableLimits
}

// Look plans once, without a write to the table or the ledger. nodes is the
// whole list.
func Look(ctx context.Context, cfg Config, nodes []Node) (Preview, error) {
	cfg.Observer = silent{}
	e, err := New(cfg)
	if err != nil {
		return Preview{}, err
	}
	e.ctx = ctx
	if err := e.look(ctx, nodes); err != nil {
		return Preview{}, err
	}
	limit := e.maxDeletes()
	if len(nodes) == 0 {
		limit = noLimit
	}
	diff, _ := e.compare(e.roots(), limit)
	if len(nodes) == 0 {
		// A Node list that is empty is more likely broken than true.
		diff.Held, diff.Changes = append(diff.Held, diff.Changes...), nil
	}
	diff.Conflicts = slices.DeleteFunc(diff.Conflicts, func(c vpc.Conflict) bool { return c.Route.Table == "" })
	for _, c := range diff.Conflicts {
		e.block(c)
	}
	return Preview{Diff: diff, Routes: e.lacking(), Tables: e.limits.Tables}, nil
}

// look reads everything that a plan needs.
func (e *Engine) look(ctx context.Context, nodes []Node) error {
	now := time.Now()
	entries, err := e.cfg.Ledger.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	e.loadEntries(entries, now)
	limits, found, err := e.read(ctx)
	for try := 0; err != nil && worthTrying([]Left{{Err: err}}) && try < patience; try++ {
		hint, _ := vpc.RetryAfter(err)
		if err := pause(ctx, max(hint, backoff(try))); err != nil {
			return err
		}
		limits, found, err = e.read(ctx)
	}
	if err != nil {
		return err
	}
	e.listed(now, limits, found, nil, now)
	for _, n := range nodes {
		e.setNode(n)
	}
	for _, task := range e.toResolve {
		hop, err := e.cfg.Table.NextHop(ctx, task.node.Node, task.family)
		task.hop.value, task.hop.err, task.hop.asked = hop, err, true
	}
	return nil
}

// lacking are the statuses of claims and Nodes that no change will satisfy.
func (e *Engine) lacking() []RouteStatus {
	var lacking []RouteStatus
	for _, m := range e.members {
		if m.problem != nil && m.Exclusion == Included {
			lacking = append(lacking, RouteStatus{Node: m.Name, UID: m.UID, State: Invalid, Reason: m.problem.Reason, Message: m.problem.Err.Error()})
		}
		for _, c := range m.claims {
			for _, table := range e.statusTables() {
				s := e.claimStatus(c, Place{table, c.dest})
				switch s.State {
				case Pending, Programmed, Verified:
				default:
					lacking = append(lacking, s)
				}
			}
		}
	}
	slices.SortFunc(lacking, func(a, b RouteStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), netip.Prefix.Compare(a.Destination, b.Destination), cmp.Compare(a.Table, b.Table))
	})
	return lacking
}

// silent is an Observer that nobody listens to.
type silent struct{}

func (silent) Route(RouteStatus) {}
func (silent) Node(NodeStatus)   {}
func (silent) Event(Event)       {}
