// Command ours is the route controller as "route-controller" runs it in a
// cluster, in the world of the benchmark: the engine, with VPCRoutes as its
// ledger, Nodes from a watch, the reporter of conditions and Events, and its
// log. Left out are the Lease, the page with metrics, and the packets of the
// proofs: a prover answers at once, so that their bookkeeping is there. It must
// not do less for a route than the real command does.
package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"

	"github.com/vpcroute/vpcroute/bench/routes/world"
	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/kube"
)

func main() { world.Main(run) }

// run does what the command does while it leads.
func run(ctx context.Context, s world.Surroundings) error {
	if s.Config.QPS == 0 {
		s.Config.QPS, s.Config.Burst = 200, 400 // as kube.Connect does
	}
	client, err := kube.NewClient(s.Config)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	complain := func(err error) { log.Error("Kubernetes", "error", err) }
	leads := leader{}.Leads
	ledger := kube.NewRoutes(client)
	reporter := kube.NewReporter(client, ledger, leads, complain)
	engine, err := routes.New(routes.Config{
		Table:    kube.FenceTable(table{s.Cloud}, leader{}),
		Ledger:   kube.FenceLedger(ledger, leads),
		Observer: journal{reporter, log},
		Prover:   answers{},
		Owner:    "bench",
		Ranges:   []netip.Prefix{world.Range},
		Rate:     s.Rate,
	})
	if err != nil {
		return err
	}
	nodes, err := client.Follow(reporter, engine, nil)
	if err != nil {
		return err
	}
	go nodes.Run(ctx)
	go ledger.Watch(ctx, complain)
	go reporter.Run(ctx)
	go func() {
		if nodes.Wait(ctx) == nil {
			engine.NodesComplete()
		}
	}()
	return engine.Run(ctx)
}

// A leader is one that nobody contends with.
type leader struct{}

func (leader) Leads() error { return nil }

func (leader) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// answers is every node's agent, which answers at once.
type answers struct{}

func (answers) Prove(context.Context, routes.Target) error { return nil }

// A journal logs what the reporter is told, as the command's does.
type journal struct {
	*kube.Reporter
	log *slog.Logger
}

func (j journal) Route(s routes.RouteStatus) {
	j.Reporter.Route(s)
	if s.State != routes.Pending && s.State != routes.Programmed {
		j.log.Info("route", "node", s.Node, "table", s.Table, "destination", s.Destination, "nextHop", s.NextHop,
			"state", s.State, "reason", s.Reason, "message", s.Message)
	}
}

func (j journal) Node(s routes.NodeStatus) {
	j.Reporter.Node(s)
	if s.Verdict != routes.Undecided {
		j.log.Info("node", "node", s.Node, "verdict", s.Verdict, "reason", s.Reason, "message", s.Message)
	}
}

func (j journal) Event(e routes.Event) {
	j.Reporter.Event(e)
	j.log.Warn("event", "kind", e.Kind, "node", e.Node, "table", e.Table, "destination", e.Destination, "message", e.Message)
}
