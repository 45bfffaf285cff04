package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// A state is what the agent tells about the node. It is safe for concurrent use.
type state struct {
	settings settings
	bootID   string
	metrics  *metrics

	mu     sync.Mutex
	node   node.Node
	report node.Report
	err    error
	passed time.Time // when the last pass ended
}

func newState(s settings) *state {
	// The kernel makes one for each boot (random(4)).
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	st := &state{settings: s, bootID: strings.TrimSpace(string(id)), passed: time.Now()}
	st.metrics = newMetrics(st)
	return st
}

func (s *state) set(n node.Node, r node.Report, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(n.PodCIDRs) == 0 {
		n.PodCIDRs, _ = s.settings.agent.Installation.PodCIDRs()
	}
	s.node, s.report, s.err, s.passed = n, r, err, time.Now()
	s.metrics.observe(r, err)
}

func (s *state) count(calls []node.Call) {
	for _, c := range calls {
		s.metrics.called(c)
	}
}

// get returns what the last pass found.
func (s *state) get() (n node.Node, r node.Report, err error, passed time.Time) { //nolint:revive // the error is a value here, not this function's own
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.report, s.err, s.passed
}

func (s *state) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /whoami", s.whoami)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /facts", s.facts)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

// whoami answers the route controller's proof: which node a packet to this
// podCIDR's gateway has reached.
func (s *state) whoami(w http.ResponseWriter, _ *http.Request) {
	n, _, _, _ := s.get()
	if n.Name == "" {
		n.Name = s.settings.nodeName
	}
	answer(w, struct {
		Node     string         `json:"node"`
		UID      string         `json:"uid"`
		PodCIDRs []netip.Prefix `json:"podCIDRs"`
		BootID   string         `json:"bootID"`
	}{n.Name, n.UID, n.PodCIDRs, s.bootID})
}

// healthz fails when the loop hangs, so that the process is started anew.
func (s *state) healthz(w http.ResponseWriter, _ *http.Request) {
	_, _, _, passed := s.get()
	if age := time.Since(passed); age > 4*s.settings.period+time.Minute {
		http.Error(w, fmt.Sprintf("the last look at the node ended %v ago", age.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// readyz is ok when pods can be attached.
func (s *state) readyz(w http.ResponseWriter, _ *http.Request) {
	_, r, err, _ := s.get()
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !r.Ready:
		http.Error(w, r.String(), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ok")
	}
}

// facts tells all that is known of the node, for diagnosis.
func (s *state) facts(w http.ResponseWriter, _ *http.Request) {
	n, r, err, passed := s.get()
	f := struct {
		Version   string           `json:"version"`
		Node      string           `json:"node"`
		UID       string           `json:"uid"`
		BootID    string           `json:"bootID"`
		PodCIDRs  []netip.Prefix   `json:"podCIDRs"`
		NodeIPs   []netip.Addr     `json:"nodeIPs"`
		MaxPods   int              `json:"maxPods"`
		Uplink    string           `json:"uplink"`
		MTU       int              `json:"mtu"`
		Ready     bool             `json:"ready"`
		Waiting   string           `json:"waiting,omitempty"`
		Error     string           `json:"error,omitempty"`
		Warnings  []string         `json:"warnings,omitempty"`
		Rival     string           `json:"rivalConfiguration,omitempty"`
		Drifts    []node.Drift     `json:"drifts,omitempty"`
		Addresses node.Addresses   `json:"addresses"`
		Filter    node.FilterFacts `json:"packetFilter"`
		LookedAt  time.Time        `json:"lookedAt"`
	}{
		Version: version, Node: n.Name, UID: n.UID, BootID: s.bootID, PodCIDRs: n.PodCIDRs, NodeIPs: n.Addresses, MaxPods: n.MaxPods,
		Uplink: r.Link.Name, MTU: r.Link.MTU, Ready: r.Ready && err == nil, Waiting: r.Waiting,
		Warnings: r.Warnings, Rival: r.Rival, Drifts: r.Drifts, LookedAt: passed,
	}
	if err != nil {
		f.Error = err.Error()
	}
	var problem error
	if f.Addresses, problem = s.addresses(); problem != nil {
		f.Warnings = append(f.Warnings, problem.Error())
	}
	if f.Filter, problem = node.ReadFilter("/proc/net"); problem != nil {
		f.Warnings = append(f.Warnings, problem.Error())
	}
	answer(w, f)
}

// addresses counts them; a node without a podCIDR has none.
func (s *state) addresses() (node.Addresses, error) {
	n, _, _, _ := s.get()
	if len(n.PodCIDRs) == 0 {
		return node.Addresses{}, nil
	}
	return node.CountAddresses(s.settings.agent.Bridge, s.settings.stateDir, n.PodCIDRs)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client went away
}
