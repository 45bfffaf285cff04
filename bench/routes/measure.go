package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
	"github.com/vpcroute/vpcroute/bench/routes/world"
)

// A plan says how much is measured.
type plan struct {
	bin                 string
	fresh, small, large int // nodes
	changes             int
	period              time.Duration
}

// A contender is a controller under measurement.
type contender struct {
	name     string
	program  string
	watching bool
}

// The contenders, ours first. Upstream's controller compares everything every
// ten seconds; its alpha feature has Nodes wake it instead.
var contenders = []contender{
	{ours, "ours", false},
	{peer, "upstream", false},
	{woken, "upstream", true},
}

// The contenders' names in the report.
const (
	ours  = "vpcroute"
	peer  = "upstream"
	woken = "upstream, watching"
)

// terms are those of a middling cloud: ten calls per second, five seconds for a
// create, and lists that lag by as much.
func terms(nodes int) world.Terms {
	return world.Terms{Rate: allowance, Write: 5 * time.Second, List: 200 * time.Millisecond, Lag: 5 * time.Second, Quota: 2*nodes + 100}
}

const (
	allowance = 10.0 // calls per second
	shared    = 3.0  // what is left of it where others use the account too
	failing   = 0.1
)

// measure goes through all scenarios and returns the figures.
func measure(ctx context.Context, p plan, progress io.Writer) ([]report.Figure, error) {
	fresh := p.scenario(p.fresh)
	idle := p.scenario(p.small)
	idle.Idle = time.Hour
	faulty := p.scenario(p.small)
	faulty.Terms.Failing = failing
	throttled := p.scenario(p.small)
	throttled.Terms.Rate = shared

	var figures []report.Figure
	for _, s := range []struct {
		what    string
		world   world.Scenario
		figures func(outcomes) []report.Figure
	}{
		{fmt.Sprintf("%d nodes from nothing", p.fresh), fresh, func(o outcomes) []report.Figure { return o.fresh(p.fresh) }},
		{fmt.Sprintf("idle hour, %d nodes", p.small), idle, outcomes.idle},
		{fmt.Sprintf("10 %% of calls failing, %d nodes", p.small), faulty, outcomes.troubled},
		{fmt.Sprintf("account left with %g of 10 calls/s, %d nodes", shared, p.small), throttled, outcomes.troubled},
	} {
		fmt.Fprintf(progress, "%s\n", s.what)
		o := outcomes{name: s.what, of: map[string]world.Outcome{}}
		for _, c := range contenders {
			var err error
			if o.of[c.name], err = p.live(ctx, c, s.world); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", s.what, c.name, err)
			}
		}
		figures = append(figures, s.figures(o)...)
	}
	fmt.Fprintf(progress, "nodes added to %d\n", p.large)
	grown := map[string]growth{}
	for _, c := range contenders {
		var err error
		if grown[c.name], err = p.grow(ctx, c); err != nil {
			return nil, fmt.Errorf("a node added to %d: %s: %w", p.large, c.name, err)
		}
	}
	return append(figures, growthFigures(p.large, grown)...), nil
}

func (p plan) scenario(nodes int) world.Scenario {
	return world.Scenario{Nodes: nodes, Terms: terms(nodes), Rate: allowance, Period: p.period}
}

// live has a contender live through a scenario in virtual time.
func (p plan) live(ctx context.Context, c contender, s world.Scenario) (world.Outcome, error) {
	var o world.Outcome
	s.Watching = c.watching
	cmd, err := p.command(ctx, c, s)
	if err != nil {
		return o, err
	}
	out, err := cmd.Output()
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(out, &o); err != nil {
		return o, fmt.Errorf("read what it said: %w", err)
	}
	if o.Error != "" {
		return o, errors.New(o.Error)
	}
	return o, nil
}

// command is a contender's process. What it logs is thrown away, but not
// before it was written.
func (p plan) command(ctx context.Context, c contender, s world.Scenario) (*exec.Cmd, error) {
	argument, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, c.program), string(argument))
	if cmd.Stderr, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	return cmd, nil
}

// outcomes are what the contenders have done in one scenario.
type outcomes struct {
	name string
	of   map[string]world.Outcome
}

// compare sets one side of our outcome beside each peer's.
func (o outcomes) compare(what, unit string, side func(world.Outcome) float64) []report.Figure {
	var figures []report.Figure
	for _, against := range []string{peer, woken} {
		figures = append(figures, report.New(o.name+": "+what, unit, side(o.of[ours]), against, side(o.of[against])))
	}
	return figures
}

// within sets one side of our outcome beside the most that it may be.
func (o outcomes) within(what, unit string, side func(world.Outcome) float64, limit float64) []report.Figure {
	return append([]report.Figure{report.Within(o.name+": "+what, unit, side(o.of[ours]), limit)}, o.compare(what, unit, side)...)
}

func rejectedShare(o world.Outcome) float64 {
	return 100 * float64(o.Rejected) / float64(max(1, o.Calls()))
}

// What is promised.
const (
	goalMinimum  = 1.3  // time to the last route, to the least that is possible
	goalRejected = 2.0  // per cent
	goalFirst    = 1.0  // seconds until the first call
	goalLists    = 12.0 // in an idle hour
	goalCPU      = 1.0 / 20
	goalMemory   = 0.5
)

func (o outcomes) fresh(nodes int) []report.Figure {
	least := float64(nodes-1)/allowance + terms(nodes).Write.Seconds()
	last := func(o world.Outcome) float64 { return o.LastRoute.Seconds() }
	return slices.Concat(
		[]report.Figure{report.New(o.name+": time to the last route", "s", last(o.of[ours]), "the least possible", least).AtMost(goalMinimum)},
		o.compare("time to the last route", "s", last),
		o.compare("time until the last node is available", "s", func(o world.Outcome) float64 { return o.Ready.Seconds() }),
		o.within("time to the first call", "s", func(o world.Outcome) float64 { return o.FirstCall.Seconds() }, goalFirst),
		o.compare("calls", "", func(o world.Outcome) float64 { return float64(o.Calls()) }),
		o.within("rejected calls", "%", rejectedShare, goalRejected),
		o.within("duplicate creates", "", func(o world.Outcome) float64 { return float64(o.Duplicates) }, 0),
	)
}

func (o outcomes) idle() []report.Figure {
	return slices.Concat(
		o.within("lists", "", func(o world.Outcome) float64 { return float64(o.Lists) }, goalLists),
		o.within("writes", "", func(o world.Outcome) float64 { return float64(o.Writes) }, 0),
	)
}

func (o outcomes) troubled() []report.Figure {
	return slices.Concat(
		o.within(fmt.Sprintf("nodes unavailable after %s", world.Patience), "", func(o world.Outcome) float64 { return float64(o.Missing) }, 0),
		o.compare("time to the last route", "s", func(o world.Outcome) float64 { return o.LastRoute.Seconds() }),
		o.compare("time until the last node is available", "s", func(o world.Outcome) float64 { return o.Ready.Seconds() }),
		o.compare("calls", "", func(o world.Outcome) float64 { return float64(o.Calls()) }),
		o.compare("rejected calls", "%", rejectedShare),
		o.compare("duplicate creates", "", func(o world.Outcome) float64 { return float64(o.Duplicates) }),
	)
}
