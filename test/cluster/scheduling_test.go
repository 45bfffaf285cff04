package cluster_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// R075: no pod off the host's network lands on a node before its route is
// proved, by the taint and the scheduler of Kubernetes itself.
func TestPodsWaitForRoutes(t *testing.T) {
	s := newSite(t, 2)
	waiting := s.Nodes[1]
	s.agents[waiting.Name].silent.Store(true)
	for _, n := range s.Nodes {
		s.register(t, n, schedulable)
	}
	s.start(t, s.Nodes[0])
	s.awaitCondition(t, waiting.Name, corev1.ConditionTrue, "ProbeSilent")
	s.StartControllers(t, s.ClusterCIDRs)
	s.awaitTaint(t, waiting.Name, true)

	pod := s.createPod(t, "ordinary", waiting.Name, nil)
	onHost := s.createPod(t, "on-host", waiting.Name, func(p *corev1.PodSpec) {
		p.HostNetwork = true
		p.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists}}
	})
	s.awaitPlaced(t, onHost, true)
	s.awaitPlaced(t, pod, false)

	s.agents[waiting.Name].silent.Store(false)
	s.awaitCondition(t, waiting.Name, corev1.ConditionFalse, "RouteReady")
	s.awaitTaint(t, waiting.Name, false)
	s.awaitPlaced(t, pod, true)
}

// schedulable gives a Node what its kubelet would: room, and the word that it is
// ready.
func schedulable(o *corev1.Node) {
	o.Labels = map[string]string{corev1.LabelHostname: o.Name}
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	o.Status.Capacity, o.Status.Allocatable = room, room
	now := metav1.Now()
	o.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now},
	}
}

// awaitTaint waits until a Node has, or has not, the taint for
// NetworkUnavailable and no other.
func (s *site) awaitTaint(t *testing.T, node string, want bool) {
	t.Helper()
	eventually(t, func() string {
		var o corev1.Node
		if err := s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &o); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, taint := range o.Spec.Taints {
			keys = append(keys, taint.Key)
		}
		if want && slices.Equal(keys, []string{corev1.TaintNodeNetworkUnavailable}) || !want && len(keys) == 0 {
			return ""
		}
		return fmt.Sprintf("the taints of %s are %q; the one for its network is wanted: %t", node, keys, want)
	})
}

// createPod makes a pod that fits one Node alone.
func (s *site) createPod(t *testing.T, name, node string, edit func(*corev1.PodSpec)) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, func() string {
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{
				Containers:   []corev1.Container{{Name: "c", Image: "example.com/none"}},
				NodeSelector: map[string]string{corev1.LabelHostname: node},
			},
		}
		if edit != nil {
			edit(&pod.Spec)
		}
		err := s.Client.Create(t.Context(), pod)
		if apierrors.IsForbidden(err) {
			return err.Error() // the namespace's service account is still to be made
		}
		if err != nil {
			t.Fatal(err)
		}
		return ""
	})
	return pod
}

// awaitPlaced waits until the scheduler has placed a pod, or said that it
// cannot.
func (s *site) awaitPlaced(t *testing.T, pod *corev1.Pod, want bool) {
	t.Helper()
	eventually(t, func() string {
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && (c.Status == corev1.ConditionTrue) == want {
				return ""
			}
		}
		return fmt.Sprintf("pod %s is on node %q with %v; to be placed: %t", pod.Name, pod.Spec.NodeName, pod.Status.Conditions, want)
	})
}
