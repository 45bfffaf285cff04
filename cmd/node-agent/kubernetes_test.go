package main

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/vpcroute/vpcroute/pkg/node"
)

func object(change func(*corev1.Node)) *corev1.Node {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "n1"},
				{Type: corev1.NodeExternalIP, Address: "203.0.113.9"},
				{Type: corev1.NodeInternalIP, Address: "172.31.0.11"},
				{Type: corev1.NodeInternalIP, Address: "fd00:172:31::11"},
				{Type: corev1.NodeInternalIP, Address: "n1.internal"},
			},
		},
	}
	change(o)
	return o
}

func TestFromObject(t *testing.T) {
	want := node.Node{
		Name: "n1", UID: "u1", MaxPods: 110,
		PodCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")},
		Addresses: []netip.Addr{netip.MustParseAddr("172.31.0.11"), netip.MustParseAddr("fd00:172:31::11")},
	}
	got := fromObject(object(func(*corev1.Node) {}))
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

func TestOnlyWhatMattersWakesTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat":      {func(o *corev1.Node) { o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, false},
		"label":          {func(o *corev1.Node) { o.Labels = map[string]string{"a": "b"} }, false},
		"external":       {func(o *corev1.Node) { o.Status.Addresses[1].Address = "203.0.113.10" }, false},
		"podCIDR":        {func(o *corev1.Node) { o.Spec.PodCIDRs[0] = "10.244.9.0/24" }, true},
		"podCIDR gone":   {func(o *corev1.Node) { o.Spec.PodCIDRs = nil }, true},
		"address":        {func(o *corev1.Node) { o.Status.Addresses[2].Address = "172.31.0.12" }, true},
		"max-pods":       {func(o *corev1.Node) { o.Status.Capacity[corev1.ResourcePods] = resource.MustParse("50") }, true},
		"made anew":      {func(o *corev1.Node) { o.UID = "u2" }, true},
		"nothing at all": {func(*corev1.Node) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := differ(object(func(*corev1.Node) {}), object(c.change)); got != c.want {
				t.Errorf("differ() = %v, want %v", got, c.want)
			}
		})
	}
}

// TestWhatIsSaidEarlyIsNotLost warns before the Node was seen, as an agent does
// that starts anew on a node with a fault.
func TestWhatIsSaidEarlyIsNotLost(t *testing.T) {
	recorder := record.NewFakeRecorder(4)
	w := &nodeWatch{recorder: recorder}
	w.warn("NodeNotFit", "early")
	if n := len(recorder.Events); n != 0 {
		t.Fatalf("%d Events of a Node that was not seen", n)
	}
	for range 2 {
		w.see(object(func(*corev1.Node) {}), func() {})
	}
	w.warn("NodeNotFit", "late")
	for _, want := range []string{"Warning NodeNotFit early", "Warning NodeNotFit late"} {
		if got := <-recorder.Events; got != want {
			t.Errorf("Event is %q, want %q", got, want)
		}
	}
}
