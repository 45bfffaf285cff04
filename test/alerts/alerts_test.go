package alerts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/test/alerts"
)

const routeController = "../../manifests/alerts/route-controller.yaml"

// healthy are the series of two replicas, of which one leads and all is well.
const healthy = `
	vpcroute_leader{instance="a"} 1+0x200
	vpcroute_leader{instance="b"} 0+0x200
	vpcroute_last_comparison_timestamp_seconds{instance="a"} 0+60x200
	vpcroute_nodes_unavailable{instance="a"} 0+0x200
	vpcroute_routes{instance="a",state="Verified"} 40+0x200
	vpcroute_routes{instance="a",state="Unreachable"} 0+0x200
	vpcroute_routes{instance="a",state="Conflict"} 0+0x200
	vpcroute_routes{instance="a",state="QuotaExceeded"} 0+0x200
	vpcroute_routes{instance="a",state="Denied"} 0+0x200
	vpcroute_table_routes{instance="a",table="rtb-1"} 40+0x200
	vpcroute_table_limit{instance="a",table="rtb-1"} 51+0x200
	vpcroute_table_routes{instance="a",table="no-limit"} 40+0x200
	vpcroute_table_limit{instance="a",table="no-limit"} 0+0x200
	vpcroute_cloud_calls_total{instance="a",operation="list",class=""} 0+1x200
	vpcroute_cloud_calls_total{instance="a",operation="create",class="Throttled"} 0+0x200
	vpcroute_cloud_calls_total{instance="a",operation="create",class="Denied"} 0+0x200
	vpcroute_deletions_held{instance="a"} 0+0x200
	vpcroute_drift_total{instance="a"} 2+0x200
	vpcroute_podcidr_allocation_stopped{instance="a"} 0+0x200
	vpcroute_podcidr_nodes_waiting{instance="a"} 0+0x200
	vpcroute_time_to_verified_seconds_count{instance="a"} 0+1x200
	vpcroute_time_to_verified_seconds_bucket{instance="a",le="300"} 0+1x200
`

// with is healthy with other values for some series.
func with(changes ...string) string {
	series := map[string]string{}
	for _, line := range append(strings.Split(healthy, "\n"), changes...) {
		if name, values, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			series[name] = values
		}
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(series)) {
		text = append(text, "\t"+name+" "+series[name])
	}
	return strings.Join(text, "\n")
}

var situations = []struct {
	situation string
	series    string
	after     time.Duration
	want      []string // names of the alerts that fire, with their labels
}{
	{"all is well", with(), 3 * time.Hour, nil},
	{"leadership moves", with(`vpcroute_leader{instance="a"} 1x20 0x180`, `vpcroute_leader{instance="b"} 0x21 1x179`), time.Hour, nil},

	{"nothing is scraped", "\tup 0x60", 10 * time.Minute, []string{"VPCRouteNoLeader"}},
	{"no replica leads", with(`vpcroute_leader{instance="a"} 1x20 0x180`), 30 * time.Minute, []string{"VPCRouteNoLeader"}},

	// R092: the cloud's API is dead and nothing crashes.
	{
		"the table is not read any more", with(`vpcroute_last_comparison_timestamp_seconds{instance="a"} 0+60x10 600+0x190`), 30 * time.Minute,
		[]string{"VPCRouteComparisonStale"},
	},
	{"the table is not read for ten minutes", with(`vpcroute_last_comparison_timestamp_seconds{instance="a"} 0+60x10 600+0x190`), 20 * time.Minute, nil},

	{"a node gets no route", with(`vpcroute_nodes_unavailable{instance="a"} 1+0x200`), 15 * time.Minute, []string{"VPCRouteNodesUnavailable"}},
	{"nodes come one after the other", with(`vpcroute_nodes_unavailable{instance="a"} 1x5 0 1x5 0 1x5 0 1x5 0`), 20 * time.Minute, nil},
	{"a route carries nothing", with(`vpcroute_routes{instance="a",state="Unreachable"} 2+0x200`), 15 * time.Minute, []string{"VPCRouteUnreachable state=Unreachable"}},
	{"a foreign route is in the way", with(`vpcroute_routes{instance="a",state="Conflict"} 1+0x200`), 10 * time.Minute, []string{"VPCRouteConflict state=Conflict"}},
	{"two nodes have one range", with(`vpcroute_routes{instance="a",state="Duplicate"} 1+0x200`), 10 * time.Minute, []string{"VPCRouteConflict state=Duplicate"}},

	// R070: warned before the table is full, and told when it is.
	{"the table fills", with(`vpcroute_table_routes{instance="a",table="rtb-1"} 42+0x200`), 20 * time.Minute, []string{"VPCRouteTableFilling table=rtb-1"}},
	{"the table is full", with(`vpcroute_routes{instance="a",state="QuotaExceeded"} 10+0x200`), 5 * time.Minute, []string{"VPCRouteQuotaExceeded state=QuotaExceeded"}},

	{"writes are denied", with(`vpcroute_routes{instance="a",state="Denied"} 3+0x200`), 10 * time.Minute, []string{"VPCRouteDenied state=Denied"}},
	{"lists are denied", with(`vpcroute_cloud_calls_total{instance="a",operation="list",class="Denied"} 0+1x200`), 20 * time.Minute, []string{"VPCRouteDenied operation=list"}},
	{"the account is throttled", with(`vpcroute_cloud_calls_total{instance="a",operation="create",class="Throttled"} 0+1x200`), 40 * time.Minute, []string{"VPCRouteThrottled"}},
	{"a burst is throttled", with(`vpcroute_cloud_calls_total{instance="a",operation="create",class="Throttled"} 0+1x5 5+0x195`), 40 * time.Minute, nil},
	{"a brake holds deletions", with(`vpcroute_deletions_held{instance="a"} 30+0x200`), 20 * time.Minute, []string{"VPCRouteDeletionsHeld"}},
	{"another allocator", with(`vpcroute_podcidr_allocation_stopped{instance="a"} 1+0x200`), 5 * time.Minute, []string{"VPCRouteAllocationStopped"}},
	{"no podCIDR is left", with(`vpcroute_podcidr_nodes_waiting{instance="a"} 1+0x200`), 10 * time.Minute, []string{"VPCRouteNodesWithoutPodCIDR"}},
	{"routes are slow", with(`vpcroute_time_to_verified_seconds_bucket{instance="a",le="300"} 0+0x200`), 30 * time.Minute, []string{"VPCRouteSlow"}},
	{"another writer", with(`vpcroute_drift_total{instance="a"} 0+1x200`), 30 * time.Minute, []string{"VPCRouteDrift"}},
}

func TestRouteControllerRules(t *testing.T) {
	rules, err := alerts.Read(routeController)
	if err != nil {
		t.Fatal(err)
	}
	fired := map[string]bool{}
	for _, s := range situations {
		t.Run(s.situation, func(t *testing.T) {
			var got []string
			for _, f := range rules.Firing(t, s.series, s.after) {
				got = append(got, spell(f))
				fired[f.Name] = true
				checkTold(t, f)
			}
			if diff := cmp.Diff(s.want, got); diff != "" {
				t.Errorf("firing (-want +got):\n%s", diff)
			}
		})
	}
	for _, name := range rules.Names {
		if !fired[name] {
			t.Errorf("%s fired in no situation", name)
		}
	}
}

// spell writes an alert as "NAME LABEL=VALUE …", its severity apart.
func spell(f alerts.Firing) string {
	words := []string{f.Name}
	for _, label := range slices.Sorted(maps.Keys(f.Labels)) {
		if label != "severity" {
			words = append(words, label+"="+f.Labels[label])
		}
	}
	return strings.Join(words, " ")
}

// checkTold looks at what a person is told: how bad it is, what is the matter
// and what to do, with every figure filled in.
func checkTold(t *testing.T, f alerts.Firing) {
	t.Helper()
	if s := f.Labels["severity"]; s != "critical" && s != "warning" {
		t.Errorf("%s: severity is %q", f.Name, s)
	}
	for _, key := range []string{"summary", "description"} {
		text := f.Annotations[key]
		if text == "" || strings.Contains(text, "<error") || strings.Contains(text, "{{") || strings.Contains(text, "no value") {
			t.Errorf("%s: %s is %q", f.Name, key, text)
		}
	}
}
