package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

// A bureau is a reporter and its API server, on virtual time.
type bureau struct {
	*Reporter
	server *apiServer
	failed []error
}

// report runs a test with a Reporter at work.
func report(t *testing.T, leads func() error, test func(t *testing.T, b *bureau)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bureau{server: newAPIServer()}
		client := b.server.client(t)
		b.Reporter = NewReporter(client, NewRoutes(client), leads, func(err error) { b.failed = append(b.failed, err) })
		ctx, end := context.WithCancel(t.Context())
		go b.Run(ctx)
		test(t, b)
		end()
		synctest.Wait()
	})
}

// node makes a Node, with a condition unless that is nil, and tells of it.
func (b *bureau) node(name string, condition *corev1.NodeCondition) *corev1.Node {
	o := b.server.addNode(name)
	if condition != nil {
		b.server.mu.Lock()
		b.server.objects[nodesPath+"/"+name]["status"] = clone(object{"conditions": []corev1.NodeCondition{*condition}})
		b.server.mu.Unlock()
	}
	b.Seen(name, condition)
	return o
}

// conditionOf returns a node's condition as "status reason".
func (b *bureau) conditionOf(t *testing.T, name string) string {
	t.Helper()
	for _, n := range b.server.nodes() {
		if c := conditionOf(n); n.Name == name && c != nil {
			return fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	return "none"
}

// inAnyOrder compares lists without their order.
var inAnyOrder = cmpopts.SortSlices(strings.Compare)

// told are the Events as "type reason node".
func (b *bureau) told() (all []string) {
	for _, e := range b.server.events() {
		all = append(all, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Regarding.Name))
	}
	return all
}

func TestConditions(t *testing.T) {
	foreign := &corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"}
	ready := &corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteReady", Message: "m"}
	for _, c := range []struct {
		situation string
		has       *corev1.NodeCondition
		verdict   routes.Verdict
		reason    routes.Reason
		want      string
		writes    int
	}{
		{"unavailable from first sight", nil, routes.Unavailable, routes.NoPodCIDR, "True NoPodCIDR", 1}, // R075
		{"undecided and nothing there yet", nil, routes.Undecided, routes.ResolvingNextHop, "True ResolvingNextHop", 1},
		{"undecided, so the old verdict stands", ready, routes.Undecided, routes.AwaitingProof, "False RouteReady", 0},
		{"available", nil, routes.Available, routes.RouteReady, "False RouteReady", 1},
		{"as it is already", ready, routes.Available, routes.RouteReady, "False RouteReady", 0},
		{"another controller's", foreign, routes.Available, routes.RouteReady, "False RouteReady", 1},
		{"not our business", nil, routes.Untouched, routes.NodeExcluded, "none", 0},                             // R084
		{"not our business any more", foreign, routes.Untouched, routes.NodeExcluded, "True NoRouteCreated", 0}, // R084
	} {
		t.Run(c.situation, func(t *testing.T) {
			report(t, always, func(t *testing.T, b *bureau) {
				b.node("a", c.has)
				b.server.written()
				b.Node(routes.NodeStatus{Node: "a", Verdict: c.verdict, Reason: c.reason, Message: "m"})
				time.Sleep(time.Minute)
				if got := b.conditionOf(t, "a"); got != c.want {
					t.Errorf("the condition is %s, want %s", got, c.want)
				}
				writes := 0
				for _, w := range b.server.written() {
					if strings.HasSuffix(w, "/status") {
						writes++
					}
				}
				if writes != c.writes {
					t.Errorf("%d writes of it, want %d", writes, c.writes)
				}
			})
		})
	}
}

// Somebody who changes our condition finds it changed back; the time of its last
// transition moves only with its status.
func TestConditionIsKept(t *testing.T) {
	report(t, always, func(t *testing.T, b *bureau) {
		b.node("a", nil)
		b.Node(routes.NodeStatus{Node: "a", Verdict: routes.Unavailable, Reason: routes.CreatingRoute})
		time.Sleep(time.Minute)
		first := conditionOf(b.server.nodes()[0])
		b.Node(routes.NodeStatus{Node: "a", Verdict: routes.Unavailable, Reason: routes.ProbeSilent})
		time.Sleep(time.Minute)
		second := conditionOf(b.server.nodes()[0])
		if second.Reason != "ProbeSilent" || !second.LastTransitionTime.Equal(&first.LastTransitionTime) {
			t.Errorf("from %+v to %+v", first, second)
		}
		b.Seen("a", &corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "Meddler"})
		time.Sleep(time.Minute)
		third := conditionOf(b.server.nodes()[0])
		if third.Status != corev1.ConditionTrue || !third.LastTransitionTime.After(second.LastTransitionTime.Time) {
			t.Errorf("the meddler's condition became %+v", third)
		}
	})
}

func TestEventsAreTheNewsAlone(t *testing.T) {
	report(t, always, func(t *testing.T, b *bureau) {
		uid := string(b.node("a", nil).UID)
		status := func(v routes.Verdict, r routes.Reason) {
			b.Node(routes.NodeStatus{Node: "a", UID: uid, Verdict: v, Reason: r, Message: strings.Repeat("é", 600)})
			time.Sleep(time.Second)
		}
		status(routes.Unavailable, routes.NoPodCIDR)     // a stage on the way
		status(routes.Unavailable, routes.CreatingRoute) // likewise
		status(routes.Unavailable, routes.TableFull)
		status(routes.Unavailable, routes.TableFull) // no news
		status(routes.Available, routes.RouteReady)
		status(routes.Undecided, routes.AwaitingProof)
		status(routes.Available, routes.RouteReady)
		b.Event(routes.Event{Kind: routes.ProofLost, Node: "a", Message: "silence"})
		b.Event(routes.Event{Kind: routes.ProofRegained, Node: "a", Message: "speech"})
		b.Event(routes.Event{Kind: routes.Throttling, Message: "concerns no node"})
		time.Sleep(time.Second)
		want := []string{"Warning TableFull a", "Normal RouteReady a", "Warning ProofLost a", "Normal ProofRegained a"}
		if diff := cmp.Diff(want, b.told(), inAnyOrder); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		for _, e := range b.server.events() {
			if string(e.Regarding.UID) != uid || len(e.Note) > maxNote || strings.Contains(e.Note, "�") {
				t.Errorf("of %q (want %q), %d bytes long: %q", e.Regarding.UID, uid, len(e.Note), e.Note)
			}
		}
	})
}

// What could not be written is written once it can be, and once only, even when
// it was the answer that got lost.
func TestReportsSurviveTheAPIServer(t *testing.T) {
	for _, c := range []struct {
		situation string
		carryOut  bool
	}{{"requests are lost", false}, {"answers are lost", true}} {
		t.Run(c.situation, func(t *testing.T) {
			report(t, always, func(t *testing.T, b *bureau) {
				b.node("a", nil)
				var up atomic.Bool
				b.server.fault = func(*http.Request, []byte) (bool, error) {
					if !up.Load() {
						return c.carryOut, errors.New("connection reset")
					}
					return true, nil
				}
				b.Node(routes.NodeStatus{Node: "a", Verdict: routes.Unavailable, Reason: routes.TableFull})
				time.Sleep(3 * retryReport)
				up.Store(true)
				time.Sleep(3 * retryReport)
				synctest.Wait()
				if got := b.conditionOf(t, "a"); got != "True TableFull" {
					t.Errorf("the condition is %s", got)
				}
				if diff := cmp.Diff([]string{"Warning TableFull a"}, b.told()); diff != "" {
					t.Errorf("Events (-want +got):\n%s", diff)
				}
				if len(b.failed) == 0 {
					t.Error("no failure was told")
				}
			})
		})
	}
}

// A deposed leader reports nothing.
func TestDeposedReporterIsSilent(t *testing.T) {
	leads := errors.New("deposed")
	report(t, func() error { return leads }, func(t *testing.T, b *bureau) {
		b.node("a", nil)
		b.server.written()
		b.Node(routes.NodeStatus{Node: "a", Verdict: routes.Unavailable, Reason: routes.TableFull})
		b.Event(routes.Event{Kind: routes.ProofLost, Node: "a"})
		time.Sleep(time.Minute)
		if w := b.server.written(); len(w) > 0 {
			t.Errorf("written: %v", w)
		}
	})
}

func TestClearConditions(t *testing.T) {
	server := newAPIServer()
	client := server.client(t)
	for name, c := range map[string]corev1.NodeCondition{
		"ours":     {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "ProbeSilent"},
		"foreign":  {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"},
		"ready":    {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteReady"},
		"anything": {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "ProbeSilent", LastTransitionTime: metav1.Now()},
	} {
		server.addNode(name)
		server.objects[nodesPath+"/"+name]["status"] = clone(object{"conditions": []corev1.NodeCondition{c}})
	}
	server.written()
	if err := client.ClearConditions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PATCH " + nodesPath + "/ours/status"}, server.written()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	for _, n := range server.nodes() {
		if c := conditionOf(n); n.Name == "ours" && (c.Status != corev1.ConditionFalse || c.Reason != reasonRemoved) {
			t.Errorf("our condition is %+v", c)
		}
	}
}
