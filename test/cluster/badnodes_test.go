package cluster_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
)

// badNodes are Nodes that cannot be routed as they are.
var badNodes = []struct {
	name      string
	podCIDRs  []string
	addresses []string
	reason    string
	states    []v1alpha1.State
	words     []string // in the condition's message and in the Event's
}{
	{"out-of-range", []string{"192.0.2.0/24"}, []string{"172.31.0.91"}, "PodCIDROutOfRange", []v1alpha1.State{v1alpha1.StateInvalid}, []string{"192.0.2.0/24", "correct the node or the cluster CIDRs"}},
	{"overlapping", []string{"10.244.1.128/25"}, []string{"172.31.0.92"}, "PodCIDRTaken", []v1alpha1.State{v1alpha1.StateDuplicate}, []string{"10.244.1.128/25", "node-1"}},
	{"no-address", []string{"10.244.93.0/24"}, nil, "NodeUnfit", []v1alpha1.State{v1alpha1.StateInvalid}, []string{"no-address", "address"}},
	{"no-ipv6-address", []string{"fd00:10:244:94::/64"}, []string{"172.31.0.94"}, "NodeUnfit", []v1alpha1.State{v1alpha1.StateInvalid}, []string{"no-ipv6-address", "IPv6"}},
}

// TestBadNodes: each gets one Event and one state that say what to do, and
// nobody else notices.
func TestBadNodes(t *testing.T) {
	s := newSite(t, 1)
	good := s.Nodes[0]
	s.register(t, good)
	c := s.start(t, good)
	s.awaitStates(t, good.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
	condition := spellCondition(s.networkUnavailable(t, good.Name))
	writes := s.watchTable(t)

	t.Run("malformed", func(t *testing.T) {
		if err := s.Client.Create(t.Context(), nodeWith("malformed", []string{"10.244.9/24"}, nil)); !apierrors.IsInvalid(err) {
			t.Errorf("the API server takes it: %v", err)
		}
	})
	for _, bad := range badNodes {
		if err := s.Client.Create(t.Context(), nodeWith(bad.name, bad.podCIDRs, bad.addresses)); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range badNodes {
		t.Run(bad.name, func(t *testing.T) {
			told := s.awaitCondition(t, bad.name, corev1.ConditionTrue, bad.reason)
			s.awaitStates(t, bad.name, bad.states...)
			s.awaitEvent(t, bad.name, bad.reason)
			notes := s.notes(t, bad.name)
			if len(notes) != 1 {
				t.Errorf("%d Events, want one: %q", len(notes), notes)
			}
			for _, word := range bad.words {
				if !strings.Contains(told.Message, word) || !strings.Contains(notes[0], word) {
					t.Errorf("%q is not in the condition's %q or the Event's %q", word, told.Message, notes[0])
				}
			}
		})
	}
	if now := spellCondition(s.networkUnavailable(t, good.Name)); now != condition {
		t.Errorf("the good node's condition went from %s to %s", condition, now)
	}
	s.awaitProof(t, c, 2)
	if w := writes(); len(w) > 0 {
		t.Errorf("the table was written to: %v", w)
	}
}

func nodeWith(name string, podCIDRs, addresses []string) *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDRs[0], PodCIDRs: podCIDRs}}
	for _, a := range addresses {
		o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return o
}

// notes are what the Events of a Node say.
func (s *site) notes(t *testing.T, node string) (notes []string) {
	t.Helper()
	var list eventsv1.EventList
	if err := s.Client.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Name == node {
			notes = append(notes, e.Note)
		}
	}
	slices.Sort(notes)
	return notes
}
