package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/test/cluster"
)

const crd = "../../manifests/base/crd"

// route is a VPCRoute that the schema accepts, changed by some edits.
func route(name string, edits ...func(*v1alpha1.VPCRouteSpec)) *v1alpha1.VPCRoute {
	r := &v1alpha1.VPCRoute{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.VPCRouteSpec{
			NodeName:    "node-1",
			NodeUID:     "8f2c9a54-7d0e-4c11-9d2b-0123456789ab",
			Destination: "10.244.1.0/24",
			Table:       "rtb-0a1b2c3d",
			NextHop:     "i-0a1b2c3d",
		},
	}
	for _, edit := range edits {
		edit(&r.Spec)
	}
	return r
}

func destination(d string) func(*v1alpha1.VPCRouteSpec) {
	return func(s *v1alpha1.VPCRouteSpec) { s.Destination = d }
}

func TestVPCRouteSchema(t *testing.T) {
	c := cluster.Start(t, cluster.Where{})
	c.Apply(t, crd)
	t.Run("create", func(t *testing.T) { testCreate(t, c.Client) })
	t.Run("update", func(t *testing.T) { testUpdate(t, c.Client) })
	t.Run("status", func(t *testing.T) { testStatus(t, c.Client) })
	t.Run("printed columns", func(t *testing.T) { testColumns(t, c) })
	t.Run("selected by field", func(t *testing.T) { testSelect(t, c.Client) })
}

func testCreate(t *testing.T, cl client.Client) {
	for i, test := range []struct {
		situation string
		edit      func(*v1alpha1.VPCRouteSpec)
		refusal   string // "" when accepted
	}{
		{"IPv4", destination("10.244.1.0/24"), ""},
		{"IPv6", destination("fd00:10:244:1::/64"), ""},
		{"IPv6 of odd length", destination("2001:db8:0:8000::/49"), ""},
		{"one address", destination("10.244.1.7/32"), ""},
		{"no next hop yet", func(s *v1alpha1.VPCRouteSpec) { s.NextHop = "" }, ""},
		{"previous next hops", func(s *v1alpha1.VPCRouteSpec) { s.PreviousNextHops = []string{"i-1", "i-2"} }, ""},
		{"table as a path", func(s *v1alpha1.VPCRouteSpec) {
			s.Table = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Network/routeTables/T"
		}, ""},
		{"node that cannot be routed", func(s *v1alpha1.VPCRouteSpec) { s.Destination, s.Table, s.NextHop = "", "", "" }, ""},

		{"host bits", destination("10.244.1.7/24"), `spec.destination: Invalid value: "10.244.1.7/24": destination must be a range in canonical form without host bits, for example 10.244.1.0/24`},
		{"IPv6 host bits", destination("fd00:10:244:1::1/64"), "canonical form"},
		{"IPv6 in capitals", destination("FD00:10:244:1::/64"), "canonical form"},
		{"IPv6 written out", destination("fd00:10:244:1:0:0:0:0/64"), "canonical form"},
		{"IPv4-mapped IPv6", destination("::ffff:10.244.1.0/120"), "canonical form"},
		{"leading zero", destination("10.244.01.0/24"), "canonical form"},
		{"leading zero in the length", destination("10.244.1.0/024"), "canonical form"},
		{"address without length", destination("10.244.1.0"), "canonical form"},
		{"length too long", destination("10.244.1.0/33"), "canonical form"},
		{"no range at all", destination("pod-range"), "canonical form"},
		{"space around", destination(" 10.244.1.0/24"), "canonical form"},
		{"no node name", func(s *v1alpha1.VPCRouteSpec) { s.NodeName = "" }, "spec.nodeName"},
		{"no node UID", func(s *v1alpha1.VPCRouteSpec) { s.NodeUID = "" }, "nodeUID must not be empty"},
		{"no table", func(s *v1alpha1.VPCRouteSpec) { s.Table = "" }, "destination and table must be set together"},
		{"no destination", destination(""), "destination and table must be set together"},
		{"next hop without a destination", func(s *v1alpha1.VPCRouteSpec) { s.Destination, s.Table = "", "" }, "need a destination"},
		{"same previous next hop twice", func(s *v1alpha1.VPCRouteSpec) { s.PreviousNextHops = []string{"i-1", "i-1"} }, "spec.previousNextHops[1]: Duplicate value"},
		{"empty previous next hop", func(s *v1alpha1.VPCRouteSpec) { s.PreviousNextHops = []string{""} }, "spec.previousNextHops[0]"},
	} {
		t.Run(test.situation, func(t *testing.T) {
			checkRefusal(t, cl.Create(t.Context(), route(fmt.Sprintf("create-%d", i), test.edit)), test.refusal)
		})
	}
}

// checkRefusal checks that err is the API server's refusal of an invalid object
// whose text holds want, or nil when want is "".
func checkRefusal(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && !apierrors.IsInvalid(err):
		t.Errorf("error is %v, want a refusal as invalid", err)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with %q, want %q in it", err, want)
	}
}

func testUpdate(t *testing.T, cl client.Client) {
	for i, test := range []struct {
		situation string
		edit      func(*v1alpha1.VPCRouteSpec)
		refusal   string
	}{
		{"node created again", func(s *v1alpha1.VPCRouteSpec) { s.NodeUID = "11111111-7d0e-4c11-9d2b-0123456789ab" }, ""},
		{"next hop replaced", func(s *v1alpha1.VPCRouteSpec) { s.PreviousNextHops, s.NextHop = []string{s.NextHop}, "i-2" }, ""},
		{"next hop lost", func(s *v1alpha1.VPCRouteSpec) { s.NextHop = "" }, ""},
		{"other node", func(s *v1alpha1.VPCRouteSpec) { s.NodeName = "node-2" }, "nodeName cannot change"},
		{"other destination", destination("10.244.2.0/24"), "destination cannot change"},
		{"other table", func(s *v1alpha1.VPCRouteSpec) { s.Table = "rtb-2" }, "table cannot change"},
		{"route taken away", func(s *v1alpha1.VPCRouteSpec) { s.Destination, s.Table, s.NextHop = "", "", "" }, "can neither be added nor removed"},
	} {
		t.Run(test.situation, func(t *testing.T) {
			r := route(fmt.Sprintf("update-%d", i))
			if err := cl.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			test.edit(&r.Spec)
			checkRefusal(t, cl.Update(t.Context(), r), test.refusal)
		})
	}
	t.Run("route added", func(t *testing.T) {
		r := route("update-none", func(s *v1alpha1.VPCRouteSpec) { s.Destination, s.Table, s.NextHop = "", "", "" })
		if err := cl.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		r.Spec.Destination, r.Spec.Table = "10.244.1.0/24", "rtb-1"
		checkRefusal(t, cl.Update(t.Context(), r), "can neither be added nor removed")
	})
}

func testStatus(t *testing.T, cl client.Client) {
	r := route("status")
	r.Status.State = v1alpha1.StateVerified
	if err := cl.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if r.Status.State != "" {
		t.Errorf("a status given at creation was kept: %s", r.Status.State)
	}
	for _, state := range v1alpha1.States() {
		r.Status = fullStatus(r.Generation, state)
		want := r.Status.DeepCopy()
		if err := cl.Status().Update(t.Context(), r); err != nil {
			t.Errorf("state %s: %v", state, err)
		}
		if err := cl.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &r.Status); diff != "" {
			t.Errorf("state %s read back (-want +got):\n%s", state, diff)
		}
	}
	r.Status.State = "Fine"
	checkRefusal(t, cl.Status().Update(t.Context(), r), `status.state: Unsupported value: "Fine"`)
}

func fullStatus(generation int64, state v1alpha1.State) v1alpha1.VPCRouteStatus {
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	s := v1alpha1.VPCRouteStatus{
		ObservedGeneration: generation,
		State:              state,
		Reason:             "ProbeAnswered",
		Message:            "node-1 answered over the route",
		Table:              "rtb-0a1b2c3d",
		NextHop:            "i-0a1b2c3d",
		LastChangeTime:     &now,
		LastProofTime:      &now,
	}
	for _, kind := range []string{v1alpha1.ConditionProgrammed, v1alpha1.ConditionVerified} {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Seen", ObservedGeneration: generation, LastTransitionTime: now,
		})
	}
	return s
}

func testColumns(t *testing.T, c *cluster.Cluster) {
	r := route(v1alpha1.Name("node-1", "rtb-0a1b2c3d", "10.244.1.0/24"))
	if err := c.Client.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Status = fullStatus(1, v1alpha1.StateVerified)
	if err := c.Client.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"NAME":        r.Name,
		"NODE":        "node-1",
		"DESTINATION": "10.244.1.0/24",
		"NEXT HOP":    "i-0a1b2c3d",
		"TABLE":       "rtb-0a1b2c3d",
		"STATE":       "Verified",
		"MESSAGE":     "node-1 answered over the route",
	}
	rows := c.Table(t, "/apis/vpcroute.io/v1alpha1/vpcroutes/"+r.Name)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1", len(rows))
	}
	if age, _ := rows[0]["AGE"].(string); age == "" {
		t.Errorf("AGE is %v", rows[0]["AGE"])
	}
	delete(rows[0], "AGE")
	if diff := cmp.Diff(want, rows[0]); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

func testSelect(t *testing.T, cl client.Client) {
	r := route("select", func(s *v1alpha1.VPCRouteSpec) { s.NodeName, s.NodeUID = "node-select", types.UID("u") })
	if err := cl.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.VPCRouteList
	if err := cl.List(t.Context(), &list, client.MatchingFields{"spec.nodeName": "node-select"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "select" {
		t.Errorf("selected %v, want select alone", list.Items)
	}
}
