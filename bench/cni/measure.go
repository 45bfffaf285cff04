package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
)

const (
	group   = 16  // calls at once
	burst   = 110 // the pods of a full node, the kubelet's default
	warmUp  = 3   // rounds that are not counted
	settled = 3 * time.Second
)

// A plan says how much is measured.
type plan struct {
	levels                 []int // numbers of attached pods
	rounds, groups, bursts int
}

// samples are the costs of one kind of call, by contender.
type samples map[string][]cost

// measured are the samples of ADD and DEL.
type measured map[verb]samples

// measure raises a node per contender, runs the plan and returns the figures.
func measure(bin string, plan plan, progress io.Writer) ([]report.Figure, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp("/run", "bench-cni-")
	if err != nil {
		return nil, err
	}
	var nodes []*node
	for i, c := range contenders(state) {
		n, err := newNode(c, i, bin)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}

	started, err := starts(nodes, plan.rounds)
	if err != nil {
		return nil, err
	}
	figures := compare("VERSION: a program's start and end", started, wall, 0)
	bursts, err := inTurn(nodes, burst, plan.bursts, progress, "bursts")
	if err != nil {
		return nil, err
	}
	for _, level := range plan.levels {
		fmt.Fprintf(progress, "attaching pods until there are %d on each node\n", level)
		if err := each(nodes, func(n *node) error { return n.fill(level) }); err != nil {
			return nil, err
		}
		time.Sleep(settled) // until the kernel has done what it puts off after an attachment
		single, err := inTurn(nodes, 1, plan.rounds, progress, "calls one at a time")
		if err != nil {
			return nil, err
		}
		grouped, err := inTurn(nodes, group, plan.groups, progress, "calls 16 at once")
		if err != nil {
			return nil, err
		}
		figures = append(figures, levelFigures(level, single, grouped)...)
	}
	figures = append(figures, rise(figures)...)
	figures = append(figures, compare("burst: 110 ADDs at once", bursts[add], wall, 0)...)
	figures = append(figures, compare("drain: 110 DELs at once", bursts[del], wall, 0)...)
	memory, err := memoryFigures(nodes)
	if err != nil {
		return nil, err
	}
	sizes, err := sizeFigures(nodes)
	if err != nil {
		return nil, err
	}
	return append(append(figures, memory...), sizes...), nil
}

// starts has every plugin say its versions, which takes nothing but the start of
// a process and its end. An ADD of a peer starts two.
func starts(nodes []*node, rounds int) (samples, error) {
	s := samples{}
	for range rounds + warmUp {
		for _, n := range nodes {
			if err := n.furnish(1); err != nil {
				return nil, err
			}
			took, err := n.call(version, n.spare[0])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.name, err)
			}
			s[n.name] = append(s[n.name], took)
		}
	}
	for name := range s {
		s[name] = s[name][warmUp:]
	}
	return s, nil
}

// inTurn attaches and detaches groups of spare pods, one node after the other in
// every round, so that what disturbs the machine meets all of them. The first
// rounds are not counted.
func inTurn(nodes []*node, size, rounds int, progress io.Writer, what string) (measured, error) {
	fmt.Fprintf(progress, "measuring %s\n", what)
	m := measured{add: samples{}, del: samples{}}
	skip := min(warmUp, rounds/2)
	for round := range rounds + skip {
		for i := range nodes {
			n := nodes[(i+round)%len(nodes)]
			if err := n.furnish(size); err != nil {
				return nil, err
			}
			for _, v := range []verb{add, del} {
				took, err := n.atOnce(v, n.spare[:size])
				if err != nil {
					return nil, fmt.Errorf("%s: %w", n.name, err)
				}
				if round >= skip {
					m[v][n.name] = append(m[v][n.name], took)
				}
			}
		}
	}
	return m, nil
}
