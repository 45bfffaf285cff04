package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/test/cluster"
	"github.com/vpcroute/vpcroute/test/netns"
)

// TestAllocation is about a cluster whose controller manager allocates no
// podCIDRs: the route controller does, until somebody else begins to.
func TestAllocation(t *testing.T) {
	s := newSiteOf(t, "testdata/allocating", 3)
	s.register(t, s.Nodes[0])
	c := s.start(t, s.Nodes[0])
	t.Run("a Node without a podCIDR", func(t *testing.T) { s.awaitAllocated(t, s.Nodes[1]) })
	t.Run("after a new start", func(t *testing.T) {
		s.stop(t, c)
		c.Start(t)
		s.awaitAllocated(t, s.Nodes[2])
	})
	for _, n := range s.Nodes {
		s.awaitStates(t, n.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
	}
	s.meet(t, s.Nodes...)
	t.Run("permissions", func(t *testing.T) { testAllocatorPermissions(t, s) })

	last := s.bare(t, "node-8")
	s.awaitPodCIDRs(t, last, "10.244.0.0/24 fd00:10:244::/64")
	late := s.bare(t, "node-9")
	t.Run("no podCIDR is left", func(t *testing.T) {
		s.awaitEvent(t, late, "PodCIDRsExhausted")
		if got := s.podCIDRs(t, late); got != "" {
			t.Errorf("%s got %s", late, got)
		}
		if got := c.metrics(t)["vpcroute_podcidr_nodes_waiting"]; got != "1" {
			t.Errorf("%s Nodes wait, want 1", got)
		}
	})
	// R079: two allocators would give one range twice.
	t.Run("another allocator", func(t *testing.T) {
		s.StartControllers(t, s.ClusterCIDRs) // wider than ours
		s.awaitPodCIDRs(t, late, "")
		eventually(t, func() string {
			if got := c.metrics(t)["vpcroute_podcidr_allocation_stopped"]; got != "1" {
				return "the allocator goes on beside kube-controller-manager"
			}
			return ""
		})
		eventually(t, func() string {
			if log := c.Log(); !strings.Contains(log, "AllocationStopped") {
				return "the log does not name the other allocator"
			}
			return ""
		})
	})
}

// bare makes a Node that has nothing but a name.
func (s *site) bare(t *testing.T, name string) string {
	t.Helper()
	if err := s.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	return name
}

// podCIDRs are a Node's, with a space between.
func (s *site) podCIDRs(t *testing.T, node string) string {
	t.Helper()
	var o corev1.Node
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &o); err != nil {
		t.Fatal(err)
	}
	return strings.Join(o.Spec.PodCIDRs, " ")
}

// awaitPodCIDRs waits until a Node has these podCIDRs, or any when want is empty.
func (s *site) awaitPodCIDRs(t *testing.T, node, want string) {
	t.Helper()
	eventually(t, func() string {
		if got := s.podCIDRs(t, node); got == "" || want != "" && got != want {
			return fmt.Sprintf("node %s has podCIDRs %q, want %q", node, got, want)
		}
		return ""
	})
}

// awaitAllocated registers a machine without podCIDRs and waits until it has
// those that its pods have already.
func (s *site) awaitAllocated(t *testing.T, n *netns.Node) {
	t.Helper()
	s.register(t, n, func(o *corev1.Node) { o.Spec.PodCIDR, o.Spec.PodCIDRs = "", nil })
	var want []string
	for _, p := range n.PodCIDRs {
		want = append(want, p.String())
	}
	s.awaitPodCIDRs(t, n.Name, strings.Join(want, " "))
}

// testAllocatorPermissions: the component grants what allocation needs, and
// nothing that it does not.
func testAllocatorPermissions(t *testing.T, s *site) {
	did, didNot := s.Used(t, controllerAccount)
	if len(didNot) > 0 {
		t.Errorf("the manifests do not allow what the controller needs: %v", didNot)
	}
	patch := cluster.Access{Resource: "nodes", Verb: "patch"}
	if !slices.Contains(did, patch) {
		t.Errorf("the controller did %v, and not %v", did, patch)
	}
	for _, granted := range s.Granted(t, controllerAccount) {
		if granted.Resource == "nodes" && !slices.Contains(did, granted) {
			t.Errorf("the manifests allow %v, which the controller does not need", granted)
		}
	}
}
