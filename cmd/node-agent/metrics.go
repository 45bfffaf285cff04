package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// metrics are described in docs/operations.md.
type metrics struct {
	registry  *prometheus.Registry
	calls     *prometheus.CounterVec
	durations *prometheus.HistogramVec
	passes    *prometheus.CounterVec
	restored  prometheus.Counter
	drifts    *prometheus.CounterVec
	drifting  prometheus.Gauge
	ready     prometheus.Gauge
}

func newMetrics(s *state) *metrics {
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		calls:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vpcroute_cni_calls_total", Help: "Calls of the CNI plugin by verb and CNI error code, 0 for success."}, []string{"verb", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "vpcroute_cni_call_duration_seconds", Help: "Time from the plugin's start to its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}, []string{"verb"}),
		passes:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vpcroute_agent_passes_total", Help: "Looks at the node by result, ok or error."}, []string{"result"}),
		restored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "vpcroute_agent_rule_writes_total", Help: "How often the masquerade rules had to be written, the first time included."}),
		drifts:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vpcroute_agent_setting_repairs_total", Help: "Kernel settings of ours that somebody changed and that were set again."}, []string{"setting"}),
		drifting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "vpcroute_agent_settings_drifting", Help: "Kernel settings that are not as needed and are the host's to set; /facts names them."}),
		ready:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "vpcroute_agent_ready", Help: "1 when pods can be attached to this node."}),
	}
	m.registry.MustRegister(m.calls, m.durations, m.passes, m.restored, m.drifts, m.drifting, m.ready,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), addressCollector{s})
	return m
}

func (m *metrics) called(c node.Call) {
	m.calls.WithLabelValues(c.Verb, strconv.FormatUint(uint64(c.Code), 10)).Inc()
	m.durations.WithLabelValues(c.Verb).Observe(c.Duration.Seconds())
}

func (m *metrics) observe(r node.Report, err error) {
	result, ready, drifting := "ok", 0.0, 0.0
	if err != nil {
		result = "error"
	}
	if r.Ready && err == nil {
		ready = 1
	}
	for _, d := range r.Drifts {
		if d.Ours {
			m.drifts.WithLabelValues(d.Setting).Inc()
		} else {
			drifting++
		}
	}
	if r.RulesWritten {
		m.restored.Inc()
	}
	m.passes.WithLabelValues(result).Inc()
	m.ready.Set(ready)
	m.drifting.Set(drifting)
}

// An addressCollector counts the addresses when asked, so that the numbers are
// never old.
type addressCollector struct{ state *state }

var addressDesc = prometheus.NewDesc("vpcroute_node_addresses",
	"Addresses of this node by family and state: usable (all that the podCIDR has for pods), claimed, cooling (released lately), orphaned (claimed by a broken-off attachment).",
	[]string{"family", "state"}, nil)

// Describe sends the one description.
func (c addressCollector) Describe(ch chan<- *prometheus.Desc) { ch <- addressDesc }

// Collect counts; without a podCIDR, or when the ledger cannot be read, there
// are no numbers rather than wrong ones.
func (c addressCollector) Collect(ch chan<- prometheus.Metric) {
	n, _, _, _ := c.state.get()
	counted, err := c.state.addresses()
	if err != nil {
		return
	}
	families := map[string]bool{}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() {
			families["IPv4"] = true
		} else {
			families["IPv6"] = true
		}
	}
	for family := range families {
		for name, value := range map[string]int{"usable": counted.Usable, "claimed": counted.Claimed, "cooling": counted.Cooling, "orphaned": counted.Orphaned} {
			ch <- prometheus.MustNewConstMetric(addressDesc, prometheus.GaugeValue, float64(value), family, name)
		}
	}
}
