package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
)

// What is promised, as ratios to bridge + host-local in the same run.
const (
	goalADD       = 0.35 // from 110 pods on
	goalADDMany   = 0.25 // from 250 pods on
	goalDEL       = 0.9
	goalGroupADD  = 0.4
	goalGroupDEL  = 0.7
	goalRise      = 1.2 // ADD with the most pods, to ADD with none
	goalMemory    = 1.0
	goalMegabytes = 4.0
)

func wall(c cost) time.Duration { return c.wall }
func cpu(c cost) time.Duration  { return c.cpu }

// compare sets the median of one side of ours beside each peer's. The goal, if
// there is one, is about the first peer.
func compare(name string, s samples, side func(cost) time.Duration, goal float64) []report.Figure {
	median := func(who string) float64 {
		var ds []time.Duration
		for _, c := range s[who] {
			ds = append(ds, side(c))
		}
		return report.Milliseconds(report.Median(ds))
	}
	first := report.New(name, "ms", median(ours), peer, median(peer))
	if goal != 0 {
		first = first.AtMost(goal)
	}
	return []report.Figure{first, report.New(name, "ms", median(ours), other, median(other))}
}

func levelFigures(level int, single, grouped measured) []report.Figure {
	name := func(what string) string { return fmt.Sprintf("%s, %d pods", what, level) }
	var goal float64
	switch {
	case level >= 250:
		goal = goalADDMany
	case level >= 110:
		goal = goalADD
	}
	return slices.Concat(
		compare(addName(level), single[add], wall, goal),
		compare(name("DEL"), single[del], wall, goalDEL),
		compare(name("processor time of ADD"), single[add], cpu, 0),
		compare(name("processor time of DEL"), single[del], cpu, 0),
		compare(name("16 ADDs at once"), grouped[add], wall, goalGroupADD),
		compare(name("16 DELs at once"), grouped[del], wall, goalGroupDEL),
	)
}

func addName(level int) string { return fmt.Sprintf("ADD, %d pods", level) }

// rise sets our ADD with the most pods beside our ADD with none.
func rise(figures []report.Figure) []report.Figure {
	var none, most *report.Figure
	for i, f := range figures {
		var level int
		if _, err := fmt.Sscanf(f.Name, "ADD, %d pods", &level); err != nil {
			continue
		}
		if level == 0 {
			none = &figures[i]
		}
		most = &figures[i]
	}
	if none == nil || most.Name == none.Name {
		return nil
	}
	return []report.Figure{report.New(most.Name, "ms", most.Ours, ours+" with 0 pods", none.Ours).AtMost(goalRise)}
}

// memoryFigures compares the peak memory of ADD and DEL, medians of a few calls.
func memoryFigures(nodes []*node) ([]report.Figure, error) {
	peaks := map[verb]map[string][]float64{add: {}, del: {}}
	for range 5 {
		for _, n := range nodes {
			for _, v := range []verb{add, del} {
				mib, err := n.peak(v, n.spare[0])
				if err != nil {
					return nil, fmt.Errorf("%s: %w", n.name, err)
				}
				peaks[v][n.name] = append(peaks[v][n.name], mib)
			}
		}
	}
	var figures []report.Figure
	for _, v := range []verb{add, del} {
		name := fmt.Sprintf("peak memory of %s", v)
		mine := report.Median(peaks[v][ours])
		figures = append(figures,
			report.New(name, "MiB", mine, peer, report.Median(peaks[v][peer])).AtMost(goalMemory),
			report.New(name, "MiB", mine, other, report.Median(peaks[v][other])))
	}
	return figures, nil
}

// sizeFigures compares the programs' sizes, stripped, and ours with its limit.
func sizeFigures(nodes []*node) ([]report.Figure, error) {
	sizes := map[string]float64{}
	for _, n := range nodes {
		for _, program := range n.programs {
			info, err := os.Stat(filepath.Join(n.bin, program))
			if err != nil {
				return nil, err
			}
			sizes[n.name] += float64(info.Size()) / (1 << 20)
		}
	}
	return []report.Figure{
		report.New("programs, stripped", "MiB", sizes[ours], "the limit", goalMegabytes).AtMost(1),
		report.New("programs, stripped", "MiB", sizes[ours], peer, sizes[peer]),
		report.New("programs, stripped", "MiB", sizes[ours], other, sizes[other]),
	}, nil
}
