package kube

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const vpcroutesPath = "/apis/vpcroute.io/v1alpha1/vpcroutes"

// entry is the record of a node's route.
func entry(i int) routes.Entry {
	dest := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), 0}), 24)
	return routes.Entry{Node: fmt.Sprintf("n%d", i), UID: "u", Table: "rtb-1", Destination: dest, NextHop: vpc.NextHop(fmt.Sprintf("i-%d", i))}
}

// A ledger of many pages is read whole, and in pages.
func TestLedgerIsReadInPages(t *testing.T) {
	server := newAPIServer()
	ledger := NewRoutes(server.client(t))
	want := map[string]routes.Entry{}
	for i := range 1203 {
		want[entry(i).Node] = entry(i)
		if errs := ledger.Record(t.Context(), []routes.Entry{entry(i)}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	var lists int
	server.fault = func(*http.Request, []byte) (bool, error) {
		lists++
		return true, nil
	}
	got, err := NewRoutes(server.client(t)).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]routes.Entry{}
	for _, e := range got {
		read[e.Node] = e
	}
	if diff := cmp.Diff(want, read, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || len(got) != len(want) {
		t.Errorf("%d entries (-want +got):\n%s", len(got), diff)
	}
	if lists != 3 {
		t.Errorf("read by %d calls, want 3", lists)
	}
}

// A new process that knows nothing yet leaves alone what an earlier one has
// found out, unless that was about another Node of the name.
func TestRecordedStatusStands(t *testing.T) {
	works := routes.RouteStatus{
		Node: "n1", UID: "u", Table: "rtb-1", Destination: entry(1).Destination, NextHop: "i-1", Actual: "i-1",
		State: routes.Verified, Reason: routes.RouteReady, Message: "m",
	}
	undecided := works
	undecided.State, undecided.Reason, undecided.Undecided = routes.Programmed, routes.AwaitingProof, true
	reborn := undecided
	reborn.UID = "u2"
	planned := works
	planned.State, planned.Reason = routes.Pending, routes.CreatingRoute
	for _, c := range []struct {
		situation string
		had, told routes.RouteStatus
		want      v1alpha1.State
		writes    int
	}{
		{"undecided", works, undecided, v1alpha1.StateVerified, 0},
		{"as it was", works, works, v1alpha1.StateVerified, 0},
		{"undecided and nothing recorded", routes.RouteStatus{}, undecided, v1alpha1.StateProgrammed, 1},
		{"undecided about another Node", works, reborn, v1alpha1.StateProgrammed, 1},
		{"found to be gone", works, planned, v1alpha1.StatePending, 1},
	} {
		t.Run(c.situation, func(t *testing.T) {
			server := newAPIServer()
			before := NewRoutes(server.client(t))
			before.Record(t.Context(), []routes.Entry{entry(1)})
			if c.had.Node != "" {
				if err := before.Show(t.Context(), c.had); err != nil {
					t.Fatal(err)
				}
			}
			ledger := NewRoutes(server.client(t))
			if _, err := ledger.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			server.written()
			if err := ledger.Show(t.Context(), c.told); err != nil {
				t.Fatal(err)
			}
			if w := server.written(); len(w) != c.writes {
				t.Errorf("written: %s", strings.Join(w, ", "))
			}
			if o := all[v1alpha1.VPCRoute](server, vpcroutesPath)[0]; o.Status.State != c.want {
				t.Errorf("the state is %s, want %s", o.Status.State, c.want)
			}
		})
	}
}
