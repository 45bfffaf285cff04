package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// scraped is what /metrics says.
func scraped(m *monitor) string {
	answer := httptest.NewRecorder()
	m.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func wantFigures(t *testing.T, m *monitor, figures ...string) {
	t.Helper()
	text := scraped(m)
	for _, figure := range figures {
		if !strings.Contains(text, "\n"+figure+"\n") {
			t.Errorf("no %q in\n%s", figure, text)
		}
	}
}

func TestMeasured(t *testing.T) {
	requests := newRequests()
	m := newMonitor(func() error { return nil }, requests)
	requests.count("CreateRoutes", 700*time.Millisecond, nil)
	requests.count("CreateRoutes", time.Second, &vpc.Error{Class: vpc.Throttled, Err: errors.New("slow down")})
	requests.count("DescribeRoutes", time.Second, errors.New("connection reset"))
	m.meter.Planned(map[vpc.Op]int{vpc.Create: 30, vpc.Delete: 2})
	m.meter.Verified(4 * time.Second)
	wantFigures(
		t, m,
		`vpcroute_cloud_requests_total{action="CreateRoutes",class="OK"} 1`,
		`vpcroute_cloud_requests_total{action="CreateRoutes",class="Throttled"} 1`,
		`vpcroute_cloud_requests_total{action="DescribeRoutes",class="Transient"} 1`,
		`vpcroute_cloud_request_duration_seconds_bucket{action="CreateRoutes",le="0.5"} 0`,
		`vpcroute_cloud_request_duration_seconds_bucket{action="CreateRoutes",le="1"} 2`,
		`vpcroute_plan_changes_sum{operation="create"} 30`,
		`vpcroute_plan_changes_sum{operation="replace"} 0`,
		`vpcroute_plan_changes_sum{operation="delete"} 2`,
		`vpcroute_time_to_verified_seconds_bucket{le="2.5"} 0`,
		`vpcroute_time_to_verified_seconds_bucket{le="5"} 1`,
	)
}
