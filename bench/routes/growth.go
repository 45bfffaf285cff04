package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vpcroute/vpcroute/bench/report"
	"github.com/vpcroute/vpcroute/bench/routes/world"
)

// A growth is what it cost a controller to take nodes into a large cluster.
type growth struct {
	restart time.Duration   // processor time from its start until it was quiet
	cpu     time.Duration   // for each node
	first   []time.Duration // from a node's podCIDR known to the first call
	peak    float64         // MiB
}

// grow measures a controller that finds a large cluster in order, as after a
// restart, and gets a new node every period.
func (p plan) grow(ctx context.Context, c contender) (growth, error) {
	api, err := p.settled(ctx, c)
	if err != nil {
		return growth{}, err
	}
	k, err := p.start(ctx, c, api, world.Scenario{Seeded: true})
	if err != nil {
		return growth{}, err
	}
	defer k.stop()
	before, err := k.quiet(ctx, p.period)
	if err != nil {
		return growth{}, err
	}
	g := growth{restart: before.CPU}
	for i := range p.changes {
		took, err := p.add(ctx, k, api, p.large+i)
		if err != nil {
			return g, err
		}
		g.first = append(g.first, took)
	}
	after, err := k.usage()
	if err != nil {
		return g, err
	}
	g.cpu = (after.CPU - before.CPU) / time.Duration(p.changes)
	g.peak = float64(after.Peak) / 1024
	return g, nil
}

// add adds a node, whose podCIDR comes a moment later, and returns how long its
// first call took once it was known.
func (p plan) add(ctx context.Context, k *controller, api *world.API, i int) (time.Duration, error) {
	end := time.Now().Add(p.period)
	n := world.Node(i)
	n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil
	api.PutNode(n)
	if err := rest(ctx, p.period/20); err != nil {
		return 0, err
	}
	known := time.Now()
	api.PutNode(world.Node(i))
	if err := arrival(ctx, api, i+1); err != nil {
		return 0, err
	}
	if err := rest(ctx, time.Until(end)); err != nil {
		return 0, err
	}
	u, err := k.usage()
	return u.Counts.Latest.Sub(known), err
}

// patience is the longest wait for a controller in real time.
const patience = 10 * time.Minute

// arrival waits until a number of nodes is available.
func arrival(ctx context.Context, api *world.API, nodes int) error {
	late := time.After(patience)
	for {
		available, changed := api.Available()
		if available >= nodes {
			return nil
		}
		select {
		case <-changed:
		case <-late:
			return fmt.Errorf("%d nodes are available, want %d", available, nodes)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled is an API server as the contender leaves it where all is in order.
func (p plan) settled(ctx context.Context, c contender) (*world.API, error) {
	api := world.NewAPI()
	for i := range p.large {
		n := world.Node(i)
		if c.name != ours {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated", Message: "RouteController created a route",
			})
		}
		api.PutNode(n)
	}
	if c.name != ours {
		return api, nil
	}
	// Ours leaves a VPCRoute for each route, so it is let fill a table first.
	k, err := p.start(ctx, c, api, world.Scenario{Hurry: true})
	if err != nil {
		return nil, err
	}
	defer k.stop()
	if err := arrival(ctx, api, p.large); err != nil {
		return nil, err
	}
	_, err = k.quiet(ctx, p.period)
	return api, err
}

// quiet waits until a controller has used less than a twentieth of a period's
// time, which is more than a comparison takes that finds all in order.
func (k *controller) quiet(ctx context.Context, period time.Duration) (world.Usage, error) {
	late := time.Now().Add(patience)
	for used := -period; ; {
		u, err := k.usage()
		if err != nil || u.CPU-used < period/20 {
			return u, err
		}
		if time.Now().After(late) {
			return u, fmt.Errorf("the controller is still busy after %s", patience)
		}
		used = u.CPU
		if err := rest(ctx, period); err != nil {
			return u, err
		}
	}
}

// A controller is a contender's process in real time.
type controller struct {
	cmd    *exec.Cmd
	server *httptest.Server
	ask    io.WriteCloser
	said   *bufio.Scanner
}

// start starts a contender beside an API server. Its cloud is quick.
func (p plan) start(ctx context.Context, c contender, api *world.API, s world.Scenario) (*controller, error) {
	k := &controller{server: httptest.NewServer(api.Handler())}
	s.API, s.Nodes, s.Period, s.Watching = k.server.URL, p.large, p.period, c.watching
	s.Terms = world.Terms{Rate: allowance, Write: 100 * time.Millisecond, List: 100 * time.Millisecond, Quota: 2*p.large + 100}
	s.Rate = allowance
	if s.Hurry {
		s.Terms.Rate, s.Rate, s.Terms.Write = 1e6, 1e6, 0
	}
	var err error
	if k.cmd, err = p.command(ctx, c, s); err != nil {
		return nil, err
	}
	if k.ask, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	k.said = bufio.NewScanner(out)
	return k, k.cmd.Start()
}

// stop ends the process and its API server.
func (k *controller) stop() {
	_ = k.ask.Close()
	_ = k.cmd.Wait() // it has said what there was to say
	k.server.CloseClientConnections()
	k.server.Close()
}

func (k *controller) usage() (world.Usage, error) {
	var u world.Usage
	if _, err := fmt.Fprintln(k.ask); err != nil {
		return u, err
	}
	if !k.said.Scan() {
		return u, errors.Join(errors.New("the controller's process has ended"), k.said.Err())
	}
	if err := json.Unmarshal(k.said.Bytes(), &u); err != nil {
		return u, fmt.Errorf("read what it said: %w", err)
	}
	if u.Error != "" {
		return u, errors.New(u.Error)
	}
	return u, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func growthFigures(nodes int, grown map[string]growth) []report.Figure {
	name := func(what string) string { return fmt.Sprintf("one node added to %d: %s", nodes, what) }
	mine := grown[ours]
	figures := []report.Figure{
		report.Within(name("time to the first call"), "s", report.Median(mine.first).Seconds(), goalFirst),
	}
	for _, against := range []string{peer, woken} {
		theirs := grown[against]
		cpu := report.New(name("processor time"), "ms", report.Milliseconds(mine.cpu), against, report.Milliseconds(theirs.cpu))
		restart := report.New(fmt.Sprintf("restart at %d nodes: processor time", nodes), "ms", report.Milliseconds(mine.restart), against, report.Milliseconds(theirs.restart))
		memory := report.New(fmt.Sprintf("peak memory, %d nodes", nodes), "MiB", mine.peak, against, theirs.peak)
		if against == peer {
			cpu, memory = cpu.AtMost(goalCPU), memory.AtMost(goalMemory)
		}
		first := report.New(name("time to the first call"), "s", report.Median(mine.first).Seconds(), against, report.Median(theirs.first).Seconds())
		figures = append(figures, first, cpu, restart, memory)
	}
	return figures
}
