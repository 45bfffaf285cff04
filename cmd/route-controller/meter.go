package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// requests count the calls of a cloud's API, as the cloud's package tells them.
type requests struct {
	ended *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newRequests() *requests {
	return &requests{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vpcroute_cloud_requests_total",
			Help: "Requests to the cloud's API, by the API's name of it and class of the answer (OK for success).",
		}, []string{"action", "class"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vpcroute_cloud_request_duration_seconds",
			Help:    "Time from a request to the cloud's API to its answer.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"action"}),
	}
}

// count counts one request that has ended.
func (r *requests) count(action string, took time.Duration, err error) {
	r.ended.WithLabelValues(action, class(err)).Inc()
	r.took.WithLabelValues(action).Observe(took.Seconds())
}

// class names the class of an answer.
func class(err error) string {
	if err == nil {
		return "OK"
	}
	return vpc.ClassOf(err).String()
}

// A meter measures what the engine does.
type meter struct {
	changes *prometheus.HistogramVec
	proofs  prometheus.Histogram
}

func newMeter() meter {
	return meter{
		changes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "vpcroute_plan_changes",
			Help:    "Changes of a plan, by operation; plans without any are not counted.",
			Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000},
		}, []string{"operation"}),
		proofs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "vpcroute_time_to_verified_seconds",
			Help:    "Time from a podCIDR being known to its route being verified, in every table, for routes that this process made.",
			Buckets: []float64{.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800},
		}),
	}
}

// Planned takes the size of a plan that has changes.
func (m meter) Planned(sizes map[vpc.Op]int) {
	for _, op := range []vpc.Op{vpc.Create, vpc.Replace, vpc.Delete} {
		m.changes.WithLabelValues(string(op)).Observe(float64(sizes[op]))
	}
}

// Verified takes how long a route took.
func (m meter) Verified(took time.Duration) { m.proofs.Observe(took.Seconds()) }
