// Command cni measures the vpcroute plugin beside the reference plugins, bridge
// and ptp with host-local, as whole processes and in one run: every figure is a
// ratio between calls that were made in turn on the same kernel, minutes or
// milliseconds apart. Each plugin has a node of its own, a network namespace
// inside a sandbox. It must not touch the machine's own network.
//
// It expects the programs vpcroute, bridge, ptp and host-local in one folder; see
// "make bench-cni".
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vpcroute/vpcroute/bench/report"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == launchVerb {
		os.Exit(launch(os.Args[2:]))
	}
	os.Exit(run())
}

func run() int {
	var (
		bin    = flag.String("bin", "out/bin", "`folder` of the plugins' programs")
		save   = flag.String("save", "out/cni.json", "`file` that the figures are written to as JSON")
		format = flag.String("o", "table", "what is printed: table or json")
		levels = flag.String("pods", "0,110,250,1000", "`numbers` of pods attached while calls are measured, rising")
		plan   = plan{}
	)
	flag.IntVar(&plan.rounds, "rounds", 30, "calls of each kind, one at a time, at each level")
	flag.IntVar(&plan.groups, "groups", 7, "groups of 16 calls at once, at each level")
	flag.IntVar(&plan.bursts, "bursts", 3, "bursts of 110 calls at once")
	flag.Parse()

	var err error
	if plan.levels, err = numbers(*levels); err == nil && *format != "table" && *format != "json" {
		err = fmt.Errorf("-o %s: want table or json", *format)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}

	sandbox.Enter()
	figures, err := measure(*bin, plan, os.Stderr)
	if err == nil {
		err = report.Save(*save, figures)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	write := report.Table
	if *format == "json" {
		write = report.JSON
	}
	if err := write(os.Stdout, figures); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// numbers reads rising numbers of pods with commas between them.
func numbers(list string) ([]int, error) {
	var ns []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 0 || n > maxPods || len(ns) > 0 && n <= ns[len(ns)-1] {
			return nil, fmt.Errorf("-pods %s: want rising numbers from 0 to %d, for example 0,110,250", list, maxPods)
		}
		ns = append(ns, n)
	}
	return ns, nil
}
