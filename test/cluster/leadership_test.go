package cluster_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
)

// TestLeadership runs two replicas and takes the leading one away, first in
// good order and then by stopping it from running.
func TestLeadership(t *testing.T) {
	s := newSite(t, 2)
	for _, n := range s.Nodes {
		s.register(t, n)
	}
	a := s.start(t, s.Nodes[0])
	a.awaitLeading(t)
	for _, n := range s.Nodes {
		s.awaitCondition(t, n.Name, corev1.ConditionFalse, "RouteReady")
	}
	b := s.start(t, s.Nodes[1])
	t.Run("the second replica waits and is ready", func(t *testing.T) {
		eventually(t, func() string {
			if code, body := b.get(t, "/readyz"); code != 200 {
				return fmt.Sprintf("/readyz of the waiting replica: %d %s", code, body)
			}
			return ""
		})
		if b.leads(t) {
			t.Error("two replicas lead")
		}
	})
	t.Run("handed over", func(t *testing.T) { testHandOver(t, s, a, b) })
	t.Run("taken over from one that does not run", func(t *testing.T) { testTakeOver(t, s, b, a) })
}

// testHandOver: a leader that ends lets the next one in at once, and what works
// is neither written again nor called into question meanwhile.
func testHandOver(t *testing.T, s *site, from, to *controller) {
	writes, conditions := s.watchTable(t), s.watchConditions(t)
	if err := from.Stop(t); err != nil {
		t.Errorf("on SIGTERM: %v", err)
	}
	to.awaitLeading(t)
	s.awaitProof(t, to, 2*len(s.Nodes))
	if w := writes(); len(w) > 0 {
		t.Errorf("the table was written to: %v", w)
	}
	if c := conditions(); len(c) > 0 {
		t.Errorf("conditions changed: %v", c)
	}
}

// R080: a leader that was stopped past its Lease writes nothing when it goes on.
func testTakeOver(t *testing.T, s *site, from, to *controller) {
	to.Start(t)
	from.Freeze(t)
	to.awaitLeading(t)
	// What the stopped one knows is now out of date in every way.
	gone := s.Nodes[1]
	s.unregister(t, gone)
	s.awaitRoutes(t, s.Nodes[0])
	s.awaitStates(t, gone.Name)
	holder := s.holder(t)
	writes := s.watchTable(t)
	before := from.restarts.Load()
	from.Thaw(t)
	eventually(t, func() string {
		if from.restarts.Load() > before {
			return ""
		}
		return "the deposed leader goes on, though a new start is its way back"
	})
	if w := writes(); len(w) > 0 {
		t.Errorf("the table was written to: %v", w)
	}
	if now := s.holder(t); now != holder {
		t.Errorf("the Lease is %q's, want %q's still", now, holder)
	}
	s.register(t, gone)
	s.awaitRoutes(t, s.Nodes...)
	s.awaitStates(t, gone.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
}

// awaitProof waits until a leader counts so many routes as verified.
func (s *site) awaitProof(t *testing.T, c *controller, routes int) {
	t.Helper()
	eventually(t, func() string {
		if got := c.metrics(t)[`vpcroute_routes{state="Verified"}`]; got != fmt.Sprint(routes) {
			return fmt.Sprintf("%s routes are verified, want %d", got, routes)
		}
		return ""
	})
}

// watchConditions follows NetworkUnavailable of all Nodes; the returned function
// ends that and returns every change.
func (s *site) watchConditions(t *testing.T) (changes func() []string) {
	t.Helper()
	last := map[string]string{}
	for _, n := range s.Nodes {
		last[n.Name] = spellCondition(s.networkUnavailable(t, n.Name))
	}
	watch, err := s.Clientset.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	const marker = "test/marker"
	seen := make(chan []string, 1)
	go func() {
		var all []string
		for e := range watch.ResultChan() {
			o, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			if now := spellCondition(conditionOf(o)); now != last[o.Name] {
				all = append(all, o.Name+": "+now)
				last[o.Name] = now
			}
			if o.Annotations[marker] != "" {
				break
			}
		}
		seen <- all
	}()
	return func() []string {
		// What was written before this is told before this.
		mark := []byte(`{"metadata":{"annotations":{"` + marker + `":"end"}}}`)
		if _, err := s.Clientset.CoreV1().Nodes().Patch(t.Context(), s.Nodes[0].Name, types.MergePatchType, mark, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case all := <-seen:
			return all
		case <-time.After(patience):
			t.Fatal("the watch of Nodes tells nothing")
			return nil
		}
	}
}

func spellCondition(c *corev1.NodeCondition) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s %q", c.Status, c.Reason, c.Message)
}
