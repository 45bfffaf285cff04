package cluster_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/test/cluster"
)

const base = "../../manifests/base"

var controllerKey = client.ObjectKey{Namespace: "vpcroute-system", Name: "route-controller"}

// TestOverlaysAreAccepted applies each overlay to an API server, twice, as the first
// installation and every later one do.
func TestOverlaysAreAccepted(t *testing.T) {
	overlays, err := filepath.Glob("../../manifests/overlays/*/kustomization.yaml")
	if err != nil || len(overlays) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	c := cluster.Start(t, cluster.Where{})
	for _, file := range overlays {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c.Apply(t, dir)
			c.Apply(t, dir)
			var d appsv1.Deployment
			if err := c.Client.Get(t.Context(), controllerKey, &d); err != nil {
				t.Fatal(err)
			}
			if err := c.Client.Create(t.Context(), podOf(&d, d.Namespace)); err != nil {
				t.Errorf("a pod of the controller is refused: %v", err)
			}
		})
	}
}

// TestManifests applies what an operator applies and looks at what the API
// server makes of it.
func TestManifests(t *testing.T) {
	c := cluster.Start(t, cluster.Where{})
	c.Apply(t, base)
	t.Run("applied again", func(t *testing.T) { c.Apply(t, base) })
	var d appsv1.Deployment
	if err := c.Client.Get(t.Context(), controllerKey, &d); err != nil {
		t.Fatal(err)
	}
	t.Run("a pod is admitted", func(t *testing.T) { testPodAdmitted(t, c.Client, &d) })
	t.Run("a pod is restricted but for the host's network", func(t *testing.T) { testPodRestricted(t, c.Client, &d) })
	t.Run("a pod runs on a node that waits for routes", func(t *testing.T) { testTolerations(t, &d) })
	t.Run("one replica at a time may go", func(t *testing.T) { testDisruption(t, c.Client, &d) })
	t.Run("a node's programs", func(t *testing.T) { testDaemonSets(t, c.Client) })
	t.Run("a job is made of the cleanup", func(t *testing.T) { testCleanupJob(t, c.Client) })
}

// podOf is a pod as the Deployment's controllers would make it.
func podOf(d *appsv1.Deployment, namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: d.Name + "-", Namespace: namespace, Labels: d.Spec.Template.Labels},
		Spec:       *d.Spec.Template.Spec.DeepCopy(),
	}
}

func testPodAdmitted(t *testing.T, cl client.Client, d *appsv1.Deployment) {
	pod := podOf(d, d.Namespace)
	if err := cl.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Priority == nil || *pod.Spec.Priority < 2_000_000_000 {
		t.Errorf("priority is %v, want that of a system pod", pod.Spec.Priority)
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort != p.ContainerPort {
				t.Errorf("port %s is %d on the host, want %d, so that no node gets two replicas", p.Name, p.HostPort, p.ContainerPort)
			}
		}
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("container %s may write to its root file system", c.Name)
		}
	}
}

// testPodRestricted has the API server's own pod security admission judge the
// pod: only the host's network keeps it from the strictest level.
func testPodRestricted(t *testing.T, cl client.Client, d *appsv1.Deployment) {
	strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "strict", Name: d.Spec.Template.Spec.ServiceAccountName}}
	for _, o := range []client.Object{strict, account} {
		if err := cl.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	pod := podOf(d, "strict")
	pod.Spec.HostNetwork = false
	for i := range pod.Spec.Containers {
		for j := range pod.Spec.Containers[i].Ports {
			pod.Spec.Containers[i].Ports[j].HostPort = 0
		}
	}
	if err := cl.Create(t.Context(), pod); err != nil {
		t.Errorf("refused: %v", err)
	}
	onHost := podOf(d, "strict")
	if err := cl.Create(t.Context(), onHost); !apierrors.IsForbidden(err) {
		t.Errorf("the pod as it is: error is %v, want it forbidden, or the check proves nothing", err)
	}
}

func testTolerations(t *testing.T, d *appsv1.Deployment) {
	for _, taint := range []corev1.Taint{
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute},
		{Key: "node.kubernetes.io/network-unavailable", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
	} {
		if !tolerates(d, &taint) {
			t.Errorf("%s:%s keeps the controller from the node", taint.Key, taint.Effect)
		}
	}
	if unknown := (&corev1.Taint{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}); tolerates(d, unknown) {
		t.Error("the controller goes where nobody asked it to")
	}
}

func tolerates(d *appsv1.Deployment, taint *corev1.Taint) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(tol corev1.Toleration) bool {
		return tol.ToleratesTaint(klog.Background(), taint, false)
	})
}

func testDisruption(t *testing.T, cl client.Client, d *appsv1.Deployment) {
	var pdb policyv1.PodDisruptionBudget
	if err := cl.Get(t.Context(), controllerKey, &pdb); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("the budget's selector %s does not match the pods' labels %v", selector, d.Spec.Template.Labels)
	}
	if *d.Spec.Replicas != 2 || pdb.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%d replicas of which %s may be away, want 2 and 1", *d.Spec.Replicas, pdb.Spec.MaxUnavailable)
	}
	spread, _ := json.Marshal(d.Spec.Template.Spec.TopologySpreadConstraints)
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		if selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector); err != nil || !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("the spread over %s does not count the controller's own pods: %s", c.TopologyKey, spread)
		}
	}
}
