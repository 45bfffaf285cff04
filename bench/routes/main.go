// Command routes measures our route controller beside upstream's, that of
// k8s.io/cloud-provider, in one run: each in a process of its own, each with the
// same Nodes on the same kind of API server, each writing to an equal route
// table with the same allowance, delays, quota and faults. What takes hours at
// a cloud is lived through in virtual time; processor time and memory are
// measured in real time, with an API server outside the measured process. It
// must not touch any cloud or cluster.
//
// It expects the programs ours and upstream in one folder; see "make
// bench-routes". Their package comments say what each side leaves out.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
)

func main() { os.Exit(run()) }

func run() int {
	var (
		save   = flag.String("save", "out/routes.json", "`file` that the figures are written to as JSON")
		format = flag.String("o", "table", "what is printed: table or json")
		p      = plan{}
	)
	flag.StringVar(&p.bin, "bin", "out/bin", "`folder` of the programs ours and upstream")
	flag.IntVar(&p.fresh, "fresh", 2000, "`nodes` of a cluster that starts with an empty table")
	flag.IntVar(&p.small, "small", 500, "`nodes` of the clusters that rest, meet failures, or share their account")
	flag.IntVar(&p.large, "large", 5000, "`nodes` of the cluster in which processor time and memory are measured")
	flag.IntVar(&p.changes, "changes", 6, "`nodes` that are added to the large cluster")
	flag.DurationVar(&p.period, "period", 10*time.Second, "`time` between two nodes that are added, and upstream's --route-reconciliation-period")
	flag.Parse()
	if *format != "table" && *format != "json" {
		fmt.Fprintf(os.Stderr, "bench: -o %s: want table or json\n", *format)
		return 2
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	figures, err := measure(ctx, p, os.Stderr)
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
