package world

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// A Scenario is what a controller's process is to live through.
type Scenario struct {
	// Nodes is how many Nodes there are when the controller starts.
	Nodes int
	Terms Terms
	// Rate is the allowance of calls per second that the controllers are told.
	Rate float64
	// Watching has upstream's controller woken by Nodes instead of by time, its
	// feature CloudControllerManagerWatchBasedRoutesReconciliation.
	Watching bool
	// Period is upstream's --route-reconciliation-period.
	Period time.Duration
	// Idle is how long to look on, from a while after all is done.
	Idle time.Duration

	// API is the address of an API server. Without it the process has its own,
	// and virtual time.
	API string
	// Seeded has the table hold the Nodes' routes from the start.
	Seeded bool
	// Hurry lifts the controller's own limit of calls to the API server.
	Hurry bool
}

// Surroundings are what a controller is started with.
type Surroundings struct {
	Scenario
	Config *rest.Config
	Cloud  *Cloud
}

// A Controller runs until ctx ends.
type Controller func(ctx context.Context, s Surroundings) error

// An Outcome is what a controller has done in virtual time.
type Outcome struct {
	Counts
	// FirstCall, LastRoute and Ready are the times from the start until the first
	// write, the last route, and until every Node was available; the latter two
	// are as long as Patience where Nodes are missing.
	FirstCall, LastRoute, Ready time.Duration
	// Missing is how many Nodes were not available after Patience.
	Missing int
	Error   string
}

// A Usage is what a controller's process has used since it started.
type Usage struct {
	Counts Counts
	// CPU is processor time, Peak the peak of resident memory in KiB.
	CPU   time.Duration
	Peak  int
	Error string
}

const (
	// Patience is the longest that a scenario waits for all Nodes.
	Patience = time.Hour
	// settling is how long a controller has after its work until it counts as idle:
	// longer than the time between two full comparisons.
	settling = 10 * time.Minute
)

// Main is the main function of a process that runs one controller: its argument
// is a Scenario in JSON. In virtual time it prints an Outcome; in real time it
// prints a Usage for every line of its input, until that ends.
func Main(run Controller) {
	var s Scenario
	if len(os.Args) != 2 {
		fail(errors.New("want a scenario as the only argument; the benchmark starts this program"))
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		fail(fmt.Errorf("read the scenario: %w", err))
	}
	if s.API != "" {
		serve(s, run)
		return
	}
	// A bubble wants a test around it.
	os.Args = os.Args[:1]
	tests := []testing.InternalTest{{Name: "scenario", F: func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			say(live(t.Context(), s, run))
			os.Exit(0) // controllers leave goroutines behind, which a bubble would wait for
		})
	}}}
	testing.Main(func(string, string) (bool, error) { return true, nil }, tests, nil, nil)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func say(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		fail(err)
	}
}

// live goes through a scenario in virtual time.
func live(ctx context.Context, s Scenario, run Controller) Outcome {
	var nodes []*corev1.Node
	for i := range s.Nodes {
		nodes = append(nodes, Node(i))
	}
	api, cloud := NewAPI(nodes...), NewCloud(s.Terms)
	config := &rest.Config{Host: "http://api", Transport: Pipe{api.Handler()}}
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, Surroundings{s, config, cloud}) }()
	missing, err := await(api, s.Nodes, ended)
	if err != nil {
		return Outcome{Error: err.Error()}
	}
	o := Outcome{Ready: time.Since(began), Missing: missing, Counts: cloud.Counts()}
	o.FirstCall, o.LastRoute = o.First.Sub(began), o.Last.Sub(began)
	if missing > 0 {
		o.LastRoute = o.Ready
	}
	if s.Idle > 0 {
		time.Sleep(settling)
		cloud.Change(s.Terms)
		time.Sleep(s.Idle)
		o.Counts = cloud.Counts()
	}
	return o
}

// await waits until a number of Nodes is available, and returns how many are
// not after all.
func await(api *API, nodes int, ended <-chan error) (missing int, err error) {
	late := time.After(Patience)
	for {
		available, changed := api.Available()
		if available >= nodes {
			return 0, nil
		}
		select {
		case <-changed:
		case err := <-ended:
			return 0, fmt.Errorf("the controller ended: %w", err)
		case <-late:
			return nodes - available, nil
		}
	}
}

// serve runs a controller in real time beside an API server elsewhere.
func serve(s Scenario, run Controller) {
	var routes []Route
	if s.Seeded {
		routes = Routes(0, s.Nodes)
	}
	cloud := NewCloud(s.Terms, routes...)
	config := &rest.Config{Host: s.API}
	if s.Hurry {
		config.QPS = -1
	}
	ended := make(chan error, 1)
	go func() { ended <- run(context.Background(), Surroundings{s, config, cloud}) }()
	asks := bufio.NewScanner(os.Stdin)
	for asks.Scan() {
		u, err := usage()
		u.Counts = cloud.Counts()
		select {
		case e := <-ended:
			err = errors.Join(err, fmt.Errorf("the controller ended: %w", e))
		default:
		}
		if err != nil {
			u.Error = err.Error()
		}
		say(u)
	}
}

func usage() (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano())}
	// Not the peak of Rusage, which counts what the starting process had.
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return u, err
	}
	defer func() { _ = status.Close() }() // it was only read
	text, err := io.ReadAll(status)
	for line := range strings.SplitSeq(string(text), "\n") {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &u.Peak) // every other line
	}
	return u, err
}
