package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/kube"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// leaseName is the name of the Lease, which manifests/ grants.
const leaseName = "route-controller"

// connect makes the client of the cluster.
func (s settings) connect() (*kube.Client, error) {
	return kube.Connect(s.kubeconfig, "route-controller/"+version)
}

// identity names this process among its replicas.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// serveCluster keeps the table in step with the cluster's Nodes until ctx ends
// or another replica takes over.
func serveCluster(ctx context.Context, s settings, logs io.Writer) error {
	log := s.log.logger(logs)
	client, err := s.connect()
	if err != nil {
		return err
	}
	leader := client.Leader(s.namespace, leaseName, identity())
	leader.Waits = func(err error) { log.Info("route controller does not lead yet", "reason", err) }
	watch := newMonitor(leader.Leads, s.requests)
	s.config.Table = kube.FenceTable(watch.counted(s.config.Table), leader)
	stop, err := watch.serve(s.http)
	if err != nil {
		return err
	}
	defer stop()
	log.Info("route controller waits to lead", "version", version, "identity", leader.Identity, "clusterCIDRs", fmt.Sprint(s.config.Ranges))
	err = leader.Lead(ctx, func(ctx context.Context) error {
		log.Info("route controller leads")
		return lead(ctx, s, client, leader, watch, log)
	})
	if ctx.Err() != nil && !errors.Is(err, kube.ErrDeposed) {
		log.Info("route controller ends; the routes stay")
		return nil
	}
	return err
}

// lead runs the engine while this process holds the Lease.
func lead(ctx context.Context, s settings, client *kube.Client, leader *kube.Leader, watch *monitor, log *slog.Logger) error {
	complain := func(err error) { log.Error("Kubernetes", "error", err) }
	ledger := kube.NewRoutes(client)
	reporter := kube.NewReporter(client, ledger, leader.Leads, complain)
	s.config.Ledger = kube.FenceLedger(ledger, leader.Leads)
	s.config.Observer, s.config.Meter = observers{journal{log}, reporter}, watch.meter
	engine, err := routes.New(s.config)
	if err != nil {
		return err
	}
	var allocator *kube.Allocator
	if len(s.podCIDRs) > 0 {
		if allocator, err = client.NewAllocator(s.podCIDRs, leader.Identity, leader.Leads, s.config.Observer.Event, complain); err != nil {
			return err
		}
	}
	nodes, err := client.Follow(reporter, engine, allocator)
	if err != nil {
		return err
	}
	if err := logFindings(ctx, s.config.Table, log); err != nil {
		return err
	}
	watch.follow(engine, allocator)

	// Whatever the engine says last is still to be written when it has ended.
	reporting, endReports := context.WithCancel(context.WithoutCancel(ctx))
	defer endReports()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { nodes.Run(ctx) })
	running.Go(func() { ledger.Watch(ctx, complain) })
	if allocator != nil {
		running.Go(func() { allocator.Run(ctx, nodes.Wait) })
	}
	go reporter.Run(reporting)
	running.Go(func() {
		if nodes.Wait(ctx) == nil {
			engine.NodesComplete()
		}
	})
	return engine.Run(ctx)
}

// observers are told one after the other.
type observers []routes.Observer

func (o observers) Route(s routes.RouteStatus) {
	for _, each := range o {
		each.Route(s)
	}
}

func (o observers) Node(s routes.NodeStatus) {
	for _, each := range o {
		each.Node(s)
	}
}

func (o observers) Event(e routes.Event) {
	for _, each := range o {
		each.Event(e)
	}
}

// logFindings logs what a check finds. The error is what the controller refuses
// to start on.
func logFindings(ctx context.Context, table vpc.RouteTable, log *slog.Logger) error {
	var fatal []error
	for _, f := range table.Preflight(ctx) {
		level := slog.LevelInfo
		if f.Severity != vpc.SeverityInfo {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "check", "severity", string(f.Severity), "object", f.Object, "message", f.Message, "fix", f.Fix)
		if f.Fatal {
			fatal = append(fatal, fmt.Errorf("refusing to start: %s: %s; %s", f.Object, f.Message, f.Fix))
		}
	}
	return errors.Join(fatal...)
}

// handOver is how long a cleanup waits for the controller that leads.
const handOver = 30 * time.Second

// alone runs work as the leader, so that no controller makes again what it
// removes.
func (s settings) alone(ctx context.Context, client *kube.Client, work func(ctx context.Context, ledger routes.Ledger, leader *kube.Leader) error) error {
	leader := client.Leader(s.namespace, leaseName, identity())
	waiting, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(handOver, func() {
		if leader.Leads() != nil {
			cancel(errors.New("another controller leads: scale it to zero first"))
		}
	})
	defer timer.Stop()
	defer cancel(nil)
	err := leader.Lead(waiting, func(ctx context.Context) error {
		timer.Stop()
		return work(ctx, kube.FenceLedger(kube.NewRoutes(client), leader.Leads), leader)
	})
	if cause := context.Cause(waiting); errors.Is(err, context.Canceled) && cause != nil {
		return cause
	}
	return err
}

// verification reads --verify.
func (o *options) verification(c *routes.Config, inCluster bool) error {
	verify := o.verify
	if verify == "" {
		verify = "off"
		if inCluster {
			verify = "probe"
		}
	}
	duration, isSettle := strings.CutPrefix(verify, "settle=")
	switch {
	case verify == "probe":
		c.Prover = kube.NewProbe(o.agentPort)
	case verify == "off":
	case isSettle:
		d, err := time.ParseDuration(duration)
		if err != nil || d <= 0 {
			return fmt.Errorf("--verify is %q: want a duration, for example settle=30s", verify)
		}
		c.Settle = d
	default:
		return fmt.Errorf("--verify is %q: want probe, settle=30s or off", verify)
	}
	return nil
}
