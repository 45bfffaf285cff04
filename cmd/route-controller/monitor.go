package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/kube"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// wedged is how long an engine may be silent before it has to be restarted.
	wedged = 2 * time.Minute
	// stale is how old the last full comparison may be while the cloud fails.
	stale = 5 * time.Minute
)

// A monitor shows how the controller fares: /metrics, /healthz and /readyz.
type monitor struct {
	leads     func() error
	engine    atomic.Pointer[routes.Engine]
	allocator atomic.Pointer[kube.Allocator]
	calls     *prometheus.CounterVec
	requests  *requests
	meter     meter
}

func newMonitor(leads func() error, requests *requests) *monitor {
	return &monitor{leads: leads, requests: requests, meter: newMeter(), calls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vpcroute_cloud_calls_total",
		Help: "Calls to the cloud, by operation and class of the answer (OK for success); changes of one batch count each.",
	}, []string{"operation", "class"})}
}

// follow shows an engine from now on, and an allocator unless that is nil.
func (m *monitor) follow(e *routes.Engine, a *kube.Allocator) {
	m.allocator.Store(a)
	m.engine.Store(e)
}

// serve answers at an address until stop.
func (m *monitor) serve(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	server := &http.Server{Handler: m.handler(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

func (m *monitor) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, m.calls, m.requests.ended, m.requests.took, m.meter.changes, m.meter.proofs)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", answer(m.healthy))
	mux.HandleFunc("GET /readyz", answer(m.ready))
	return mux
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// healthy fails when only a restart can help.
func (m *monitor) healthy() error {
	e := m.engine.Load()
	if e == nil || m.leads() != nil {
		return nil
	}
	if beat := e.Stats().Beat; !beat.IsZero() && time.Since(beat) > wedged {
		return fmt.Errorf("the engine has been silent since %s", beat.Format(time.RFC3339))
	}
	return nil
}

// ready fails while the leader cannot do its work.
func (m *monitor) ready() error {
	e := m.engine.Load()
	if e == nil || m.leads() != nil {
		return nil
	}
	s := e.Stats()
	switch {
	case s.ListError != "" && time.Since(s.Compared) > stale:
		return errors.New(s.ListError)
	case s.ListError == "" && s.Compared.IsZero():
		return errors.New("the route tables have not been read yet")
	}
	return nil
}

// The figures.
var (
	leaderFigure   = figure("leader", "1 while this process leads, else 0.")
	comparedFigure = figure("last_comparison_timestamp_seconds", "When the last good full list of the route tables began.")
	routesFigure   = figure("routes", "Routes by state.", "state")
	nodesFigure    = figure("nodes", "Nodes known.")
	lostFigure     = figure("nodes_unavailable", "Nodes that pods of other nodes cannot reach.")
	usedFigure     = figure("table_routes", "Entries of a route table.", "table")
	limitFigure    = figure("table_limit", "Entries that a route table takes; 0 when it has no limit or does not tell.", "table")
	pendingFigure  = figure("changes_pending", "Changes that wait for their turn.")
	flightFigure   = figure("calls_in_flight", "Calls of the cloud that change routes and are under way.")
	heldFigure     = figure("deletions_held", "Deletions that a brake holds.")
	brakeFigure    = figure("changes_held", "Changes that are held back, by what holds them.", "reason")
	waitFigure     = figure("podcidr_nodes_waiting", "Nodes that wait for a podCIDR of the allocator; 0 without one.")
	stopFigure     = figure("podcidr_allocation_stopped", "1 while the allocator stands still, because something else allocates podCIDRs too; else 0.")
	conflictFigure = figure("conflicts", "Entries of others in the way, or inside the cluster CIDRs.")
	driftFigure    = figure("drift_total", "Routes of ours that somebody else changed or removed.")
	proofFigure    = figure("proofs_lost_total", "Routes that worked and stopped answering.")
	rateFigure     = figure("cloud_calls_per_second", "Calls per second that the controller allows itself at present.")
)

func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("vpcroute_"+name, help, labels, nil)
}

// Describe names no figure, since those about tables and states come and go.
func (m *monitor) Describe(chan<- *prometheus.Desc) {}

// Collect sends the figures of this moment.
func (m *monitor) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	e := m.engine.Load()
	if m.leads() != nil || e == nil {
		gauge(leaderFigure, 0)
		return
	}
	gauge(leaderFigure, 1)
	s := e.Stats()
	if !s.Compared.IsZero() {
		gauge(comparedFigure, float64(s.Compared.UnixNano())/1e9)
	}
	for state, n := range s.Routes {
		gauge(routesFigure, float64(n), string(state))
	}
	for _, t := range s.Tables {
		gauge(usedFigure, float64(t.Used), t.Table)
		gauge(limitFigure, float64(t.Max), t.Table)
	}
	gauge(nodesFigure, float64(s.Nodes))
	gauge(lostFigure, float64(s.Unavailable))
	gauge(pendingFigure, float64(s.Pending))
	gauge(flightFigure, float64(s.InFlight))
	gauge(heldFigure, float64(s.Held))
	for reason, n := range s.HeldBy {
		gauge(brakeFigure, float64(n), string(reason))
	}
	var a kube.AllocatorStats
	if allocator := m.allocator.Load(); allocator != nil {
		a = allocator.Stats()
	}
	gauge(waitFigure, float64(a.Waiting))
	gauge(stopFigure, map[bool]float64{true: 1}[a.Stopped])
	gauge(conflictFigure, float64(s.Conflicts))
	gauge(rateFigure, s.Rate)
	out <- prometheus.MustNewConstMetric(driftFigure, prometheus.CounterValue, float64(s.Drift))
	out <- prometheus.MustNewConstMetric(proofFigure, prometheus.CounterValue, float64(s.ProofsLost))
}

// counted counts the calls of a table.
func (m *monitor) counted(table vpc.RouteTable) vpc.RouteTable { return &countedTable{table, m} }

type countedTable struct {
	vpc.RouteTable
	m *monitor
}

func (c *countedTable) count(operation string, err error) {
	c.m.calls.WithLabelValues(operation, class(err)).Inc()
}

func (c *countedTable) NextHop(ctx context.Context, node vpc.Node, family vpc.Family) (vpc.NextHop, error) {
	hop, err := c.RouteTable.NextHop(ctx, node, family)
	c.count("nexthop", err)
	return hop, err
}

func (c *countedTable) List(ctx context.Context) ([]vpc.Route, error) {
	found, err := c.RouteTable.List(ctx)
	c.count("list", err)
	return found, err
}

func (c *countedTable) Limits(ctx context.Context) (vpc.Limits, error) {
	limits, err := c.RouteTable.Limits(ctx)
	c.count("limits", err)
	return limits, err
}

func (c *countedTable) Apply(ctx context.Context, changes []vpc.Change) []error {
	errs := c.RouteTable.Apply(ctx, changes)
	for i, err := range errs {
		c.count(string(changes[i].Op), err)
	}
	return errs
}
