package main

import (
	"slices"

	"github.com/vpcroute/vpcroute/bench/report"
)

// What is promised, as ratios within one run.
const (
	goalByHand     = 0.98 // of a bridge port with nothing of ours in the way
	goalOverlay    = 1.2  // times VXLAN
	goalPTP        = 1.0
	goalMasquerade = 0.98 // of what it is without the rules
)

// figures sets the medians of our shape beside those of each other one.
func (found samples) figures() []report.Figure {
	rate := func(s sample) float64 { return s.rate }
	bulk := func(s sample) float64 { return s.throughput }
	var all []report.Figure
	for _, against := range []struct {
		name string
		goal float64
	}{{limit, 0}, {byHand, goalByHand}, {ptp, goalPTP}, {overlay, goalOverlay}} {
		all = append(all,
			found.more("throughput", "MiB/s", bulk, ours, against.name, against.goal),
			found.more("requests", "1/s", rate, ours, against.name, against.goal),
			found.compare("median request", "µs", func(s sample) float64 { return s.median }, ours, against.name),
			found.compare("slowest request of 100", "µs", func(s sample) float64 { return s.slow }, ours, against.name))
	}
	for _, against := range []string{tracked, ours} {
		all = append(all,
			found.more("throughput, masquerade rules", "MiB/s", bulk, masqueraded, against, goalMasquerade),
			found.more("requests, masquerade rules", "1/s", rate, masqueraded, against, goalMasquerade))
	}
	return all
}

// more is a figure of which more is better, with a goal if there is one.
func (found samples) more(what, unit string, side func(sample) float64, who, against string, goal float64) report.Figure {
	f := found.compare(what, unit, side, who, against)
	if goal == 0 {
		return f
	}
	return f.AtLeast(goal)
}

// compare takes the ratio in every round, whose turns are moments apart, and the
// median of those: what the machine does besides changes from round to round.
func (found samples) compare(what, unit string, side func(sample) float64, who, against string) report.Figure {
	var mine, theirs, ratios []float64
	for i := range min(len(found[who]), len(found[against])) {
		mine, theirs = append(mine, side(found[who][i])), append(theirs, side(found[against][i]))
		if theirs[i] != 0 {
			ratios = append(ratios, mine[i]/theirs[i])
		}
	}
	f := report.New(what, unit, report.Median(mine), against, report.Median(theirs))
	f.Ratio = report.Median(slices.Clone(ratios))
	return f
}
