package cluster_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testDaemonSets looks at what the API server makes of the agent and of what
// takes it away.
func testDaemonSets(t *testing.T, cl client.Client) {
	// A controller makes this one, which is not there.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "vpcroute-system", Name: "default"}}
	if err := cl.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	var agent, uninstall appsv1.DaemonSet
	for name, d := range map[string]*appsv1.DaemonSet{"node-agent": &agent, "node-agent-uninstall": &uninstall} {
		if err := cl.Get(t.Context(), keyIn("vpcroute-system", name), d); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { testNodePod(t, cl, d) })
	}
	for _, tc := range []struct {
		situation         string
		labels            map[string]string
		agent, uninstalls bool
	}{
		{"a node", nil, true, false},
		{"one that it is removed from", map[string]string{"vpcroute.io/uninstall": ""}, false, true},
		{"one with another network", map[string]string{"vpcroute.io/exclude": ""}, false, false},
		{"one with Windows", map[string]string{"kubernetes.io/os": "windows"}, false, false},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			labels := map[string]string{"kubernetes.io/os": "linux"}
			for k, v := range tc.labels {
				labels[k] = v
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
			if got := goesTo(t, &agent, n); got != tc.agent {
				t.Errorf("the agent runs there: %v, want %v", got, tc.agent)
			}
			if got := goesTo(t, &uninstall, n); got != tc.uninstalls {
				t.Errorf("the removal runs there: %v, want %v", got, tc.uninstalls)
			}
		})
	}
}

func goesTo(t *testing.T, d *appsv1.DaemonSet, n *corev1.Node) bool {
	t.Helper()
	fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: d.Spec.Template.Spec}).Match(n)
	if err != nil {
		t.Fatal(err)
	}
	return fits
}

// testNodePod wants a pod that survives whatever befalls a node, and that may do
// no more than the manifests explain.
func testNodePod(t *testing.T, cl client.Client, d *appsv1.DaemonSet) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: d.Name + "-", Namespace: d.Namespace, Labels: d.Spec.Template.Labels},
		Spec:       *d.Spec.Template.Spec.DeepCopy(),
	}
	if err := cl.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Priority == nil || *pod.Spec.Priority < 2_000_001_000 {
		t.Errorf("priority is %v, want that of what a node cannot be without", pod.Spec.Priority)
	}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	if !slices.Contains(pod.Spec.Tolerations, everything) {
		t.Errorf("tolerations are %v, want one of everything", pod.Spec.Tolerations)
	}
	c := pod.Spec.Containers[0]
	want := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}}
	if diff := cmp.Diff(want, c.SecurityContext.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	if s := c.SecurityContext; s.Privileged != nil && *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || pod.Spec.HostPID || pod.Spec.HostIPC {
		t.Errorf("more than it needs: %+v", s)
	}
	// One port for both keeps an agent from putting back what is being removed.
	if got := c.Ports[0].HostPort; got != agentPort {
		t.Errorf("port is %d on the host, want %d", got, agentPort)
	}
}

// testCleanupJob makes the job as "kubectl create job --from" does.
func testCleanupJob(t *testing.T, cl client.Client) {
	var c batchv1.CronJob
	if err := cl.Get(t.Context(), keyIn("vpcroute-system", "route-controller-cleanup"), &c); err != nil {
		t.Fatal(err)
	}
	if c.Spec.Suspend == nil || !*c.Spec.Suspend {
		t.Error("it is not suspended: it would remove all routes when its time comes")
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "cleanup", Namespace: c.Namespace}, Spec: c.Spec.JobTemplate.Spec}
	if err := cl.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := cl.Get(t.Context(), controllerKey, &d); err != nil {
		t.Fatal(err)
	}
	ours, theirs := c.Spec.JobTemplate.Spec.Template.Spec, d.Spec.Template.Spec
	if diff := cmp.Diff(theirs.Volumes, ours.Volumes); diff != "" {
		t.Errorf("its configuration is not the controller's (-controller +cleanup):\n%s", diff)
	}
	if ours.ServiceAccountName != theirs.ServiceAccountName || ours.Containers[0].Image != theirs.Containers[0].Image {
		t.Errorf("it is %s of %s, and the controller %s of %s", ours.Containers[0].Image, ours.ServiceAccountName, theirs.Containers[0].Image, theirs.ServiceAccountName)
	}
}
