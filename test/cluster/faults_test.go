package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
)

// TestAPIServerAway: without an API server nothing is written, neither routes
// nor their absence, and afterwards all goes on.
func TestAPIServerAway(t *testing.T) {
	for _, away := range []struct {
		situation string
		take      func(t *testing.T, s *site) (bring func())
	}{
		{"its connections are refused", func(t *testing.T, s *site) func() {
			if err := s.Server().Stop(t); err != nil {
				t.Fatal(err)
			}
			return func() { s.Server().Start(t); s.WaitReady(t) }
		}},
		{"it does not answer", func(t *testing.T, s *site) func() {
			s.Server().Freeze(t)
			return func() { s.Server().Thaw(t); s.WaitReady(t) }
		}},
	} {
		t.Run(away.situation, func(t *testing.T) {
			s := newSite(t, 3)
			early, late := s.Nodes[:2], s.Nodes[2]
			for _, n := range early {
				s.register(t, n)
			}
			c := s.start(t, s.Nodes[0])
			for _, n := range early {
				s.awaitStates(t, n.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
			}
			writes := s.watchTable(t)
			bring := away.take(t, s)
			// Past the Lease: the controller gives up, is started anew, and waits.
			eventually(t, func() string {
				if c.restarts.Load() > 0 {
					return ""
				}
				return "the controller leads without a Lease"
			})
			bring()
			s.awaitProof(t, c, 2*len(early))
			if w := writes(); len(w) > 0 {
				t.Errorf("the table was written to: %v", w)
			}
			s.register(t, late)
			s.awaitRoutes(t, s.Nodes...)
			s.awaitStates(t, late.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
		})
	}
}

// R093: an empty Node list deletes nothing; Nodes that come back find their
// routes.
func TestNoNodes(t *testing.T) {
	s := newSite(t, 3)
	for _, n := range s.Nodes {
		s.register(t, n)
	}
	c := s.start(t, s.Nodes[0])
	s.awaitRoutes(t, s.Nodes...)
	s.awaitProof(t, c, 2*len(s.Nodes))

	// All at once, as a controller sees it that was away.
	s.stop(t, c)
	writes := s.watchTable(t)
	if err := s.Client.DeleteAllOf(t.Context(), &corev1.Node{}); err != nil {
		t.Fatal(err)
	}
	c.Start(t)
	c.awaitLeading(t)
	eventually(t, func() string {
		if got := c.metrics(t)["vpcroute_deletions_held"]; got != fmt.Sprint(2*len(s.Nodes)) {
			return fmt.Sprintf("%s deletions are held, want all %d", got, 2*len(s.Nodes))
		}
		return ""
	})
	for _, n := range s.Nodes {
		s.awaitStates(t, n.Name, v1alpha1.StateDeleting, v1alpha1.StateDeleting)
	}
	// And back. While they come one by one the list is not empty, and then the
	// ordinary brake lets a few go.
	s.stop(t, c)
	for _, n := range s.Nodes {
		s.register(t, n)
	}
	c.Start(t)
	for _, n := range s.Nodes {
		s.awaitStates(t, n.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
		s.awaitCondition(t, n.Name, corev1.ConditionFalse, "RouteReady")
	}
	if w := writes(); len(w) > 0 {
		t.Errorf("the table was written to: %v", w)
	}
	s.meet(t, s.Nodes...)
}

// stop ends a replica in good order.
func (s *site) stop(t *testing.T, c *controller) {
	t.Helper()
	if err := c.Stop(t); err != nil {
		t.Errorf("on SIGTERM: %v", err)
	}
}

// TestNodesThatWait is about Nodes that cannot be reached, or are not ours.
func TestNodesThatWait(t *testing.T) {
	s := newSite(t, 3)
	first, second, never := s.Nodes[0], s.Nodes[1], s.Nodes[2]
	s.agents[second.Name].silent.Store(true)
	s.register(t, first)
	s.register(t, second)
	s.register(t, never, func(o *corev1.Node) {
		o.Labels = map[string]string{"vpcroute.io/exclude": "true"}
	})
	c := s.start(t, first)

	// R074: the cloud's word alone does not make a node available.
	t.Run("a route that carries nothing yet", func(t *testing.T) {
		s.awaitCondition(t, second.Name, corev1.ConditionTrue, "ProbeSilent")
		s.awaitStates(t, second.Name, v1alpha1.StateUnreachable, v1alpha1.StateUnreachable)
		s.awaitEvent(t, second.Name, "ProbeSilent")
		s.agents[second.Name].silent.Store(false)
		s.awaitCondition(t, second.Name, corev1.ConditionFalse, "RouteReady")
		s.awaitStates(t, second.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
	})
	t.Run("another node answers over the route", func(t *testing.T) {
		s.unregister(t, second)
		s.awaitStates(t, second.Name)
		agent := s.agents[second.Name]
		agent.uid.Store("11111111-0000-4000-8000-000000000000")
		delete(s.agents, second.Name) // its agent does not learn the new UID
		node := s.register(t, second)
		condition := s.awaitCondition(t, second.Name, corev1.ConditionTrue, "ProbeWrongNode")
		if !strings.Contains(condition.Message, "11111111") {
			t.Errorf("the message does not say who answered: %s", condition.Message)
		}
		s.agents[second.Name] = agent
		agent.uid.Store(string(node.UID))
		s.awaitCondition(t, second.Name, corev1.ConditionFalse, "RouteReady")
	})
	// R075: the condition is there from the first sight of the node.
	t.Run("no podCIDR yet", func(t *testing.T) {
		bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-bare"}}
		if err := s.Client.Create(t.Context(), bare); err != nil {
			t.Fatal(err)
		}
		s.awaitCondition(t, bare.Name, corev1.ConditionTrue, "NoPodCIDR")
		if err := s.Client.Delete(t.Context(), bare); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a podCIDR outside the cluster's ranges", func(t *testing.T) {
		stray := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-stray"},
			Spec:       corev1.NodeSpec{PodCIDR: "192.0.2.0/24", PodCIDRs: []string{"192.0.2.0/24"}},
		}
		if err := s.Client.Create(t.Context(), stray); err != nil {
			t.Fatal(err)
		}
		condition := s.awaitCondition(t, stray.Name, corev1.ConditionTrue, "PodCIDROutOfRange")
		if !strings.Contains(condition.Message, "192.0.2.0/24") {
			t.Errorf("the message does not name the range: %s", condition.Message)
		}
		s.awaitStates(t, stray.Name, v1alpha1.StateInvalid)
		s.awaitEvent(t, stray.Name, "PodCIDROutOfRange")
		if err := s.Client.Delete(t.Context(), stray); err != nil {
			t.Fatal(err)
		}
		s.awaitStates(t, stray.Name)
	})
	// R084: an excluded node is left alone, before and after it had a route.
	t.Run("excluded", func(t *testing.T) {
		if c := s.networkUnavailable(t, never.Name); c != nil {
			t.Errorf("a node excluded from the start has the condition %s", spellCondition(c))
		}
		condition := spellCondition(s.networkUnavailable(t, first.Name))
		s.label(t, first.Name, "vpcroute.io/exclude", "true")
		s.awaitStates(t, first.Name, v1alpha1.StateExcluded, v1alpha1.StateExcluded)
		s.awaitRoutes(t, first, second) // kept
		s.label(t, first.Name, "vpcroute.io/exclude", "remove")
		s.awaitRoutes(t, second)
		if now := spellCondition(s.networkUnavailable(t, first.Name)); now != condition {
			t.Errorf("the condition went from %s to %s", condition, now)
		}
		s.label(t, first.Name, "vpcroute.io/exclude", "")
		s.awaitRoutes(t, first, second)
		s.awaitStates(t, first.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
	})
	// R092: the cloud is dead, and it shows.
	t.Run("the cloud does not answer", func(t *testing.T) { testCloudDead(t, s, c) })
}

// label sets a node's label, or removes it when the value is empty.
func (s *site) label(t *testing.T, node, key, value string) {
	t.Helper()
	text := fmt.Sprintf("%q", value)
	if value == "" {
		text = "null"
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text)
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := s.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// testCloudDead takes the way to the table away from a controller that is just
// starting, so that it has never read it.
func testCloudDead(t *testing.T, s *site, c *controller) {
	s.stop(t, c)
	before := s.conditions(t)
	if err := unix.Mount("/dev/null", s.Router.Path(), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	c.Start(t)
	c.awaitLeading(t)
	c.awaitCode(t, "/readyz", 503)
	if code, body := c.get(t, "/healthz"); code != 200 {
		t.Errorf("/healthz: %d %s, though a new start would not help", code, body)
	}
	if now := s.conditions(t); !slices.Equal(before, now) {
		t.Errorf("conditions went from %q to %q", before, now)
	}
	if err := unix.Unmount(s.Router.Path(), 0); err != nil {
		t.Fatal(err)
	}
	c.awaitCode(t, "/readyz", 200)
}

// awaitCode waits until the replica answers with an HTTP status.
func (c *controller) awaitCode(t *testing.T, path string, want int) {
	t.Helper()
	eventually(t, func() string {
		if code, body := c.get(t, path); code != want {
			return fmt.Sprintf("%s: %d %s, want %d", path, code, body, want)
		}
		return ""
	})
}

// conditions are the nodes' conditions in words.
func (s *site) conditions(t *testing.T) (spelt []string) {
	t.Helper()
	for _, n := range s.Nodes {
		spelt = append(spelt, n.Name+": "+spellCondition(s.networkUnavailable(t, n.Name)))
	}
	return spelt
}
