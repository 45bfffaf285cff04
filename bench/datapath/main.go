// Command datapath measures what traffic costs on the way from pod to pod: in
// one VPC in a box, in turn, between two nodes themselves, their pods behind
// vpcroute, and pods behind other shapes of network. Every figure is a ratio
// between measurements of the same run. It must not touch the machine's own
// network.
//
// It expects the programs vpcroute, ptp and host-local in one folder; see "make
// bench-datapath".
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func main() { os.Exit(run()) }

func run() int {
	var (
		bin    = flag.String("bin", "out/bin", "`folder` of the plugins' programs")
		save   = flag.String("save", "out/datapath.json", "`file` that the figures are written to as JSON")
		format = flag.String("o", "table", "what is printed: table or json")
		plan   = plan{}
	)
	flag.IntVar(&plan.rounds, "rounds", 15, "times that every shape has its turn")
	flag.DurationVar(&plan.turn, "turn", 500*time.Millisecond, "time of one measurement")
	flag.Parse()
	if *format != "table" && *format != "json" || plan.rounds < 1 || plan.turn <= 0 {
		fmt.Fprintf(os.Stderr, "bench: -o %s -rounds %d -turn %v: want table or json, a round or more, and some time\n", *format, plan.rounds, plan.turn)
		return 2
	}

	sandbox.Enter()
	figures, err := measure(*bin, plan, os.Stderr)
	if err == nil {
		err = report.Save(*save, figures)
	}
	if err == nil {
		write := report.Table
		if *format == "json" {
			write = report.JSON
		}
		err = write(os.Stdout, figures)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// absolute is the folder of the programs as every namespace can find it.
func absolute(bin string, programs ...string) (string, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return "", err
	}
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			return "", err
		}
	}
	return bin, nil
}
