package cluster_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/test/cluster"
	"github.com/vpcroute/vpcroute/test/netns"
)

// A controller is one replica of the Deployment, as a process on a machine that
// is started again when it ends.
type controller struct {
	*cluster.Process
	on       *netns.Node
	restarts atomic.Int64
}

// controller prepares a replica: the Deployment's own arguments and ConfigMap
// under its own service account, and the way into the box that a cloud's
// credentials are elsewhere.
func (s *site) controller(t *testing.T, on *netns.Node) *controller {
	t.Helper()
	var d appsv1.Deployment
	if err := s.Client.Get(t.Context(), controllerKey, &d); err != nil {
		t.Fatal(err)
	}
	config := s.configFile(t, d.Spec.Template.Spec.Volumes)
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "/etc/vpcroute/config.yaml", config))
	}
	account := cluster.Account{Namespace: d.Namespace, Name: d.Spec.Template.Spec.ServiceAccountName}
	args = append(args, "--kubeconfig="+s.Kubeconfig(t, account), "--linux-netns="+s.Router.Path())
	c := &controller{Process: cluster.NewProcess(t, on.Namespace, filepath.Join(s.Programs, "route-controller"), args...), on: on}
	c.Restarted = func() { c.restarts.Add(1) }
	return c
}

// configFile writes the configuration out of the Deployment's ConfigMap.
func (s *site) configFile(t *testing.T, volumes []corev1.Volume) string {
	t.Helper()
	i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
	if i < 0 {
		t.Fatal("the Deployment mounts no ConfigMap")
	}
	var m corev1.ConfigMap
	if err := s.Client.Get(t.Context(), keyIn(controllerKey.Namespace, volumes[i].ConfigMap.Name), &m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(m.Data["config.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start prepares and starts a replica.
func (s *site) start(t *testing.T, on *netns.Node) *controller {
	t.Helper()
	c := s.controller(t, on)
	c.Start(t)
	return c
}

// startListing starts a replica that lists what it is to watch, as clients do
// with API servers that cannot stream a list (KEP-3157).
func (s *site) startListing(t *testing.T, on *netns.Node) *controller {
	t.Helper()
	c := s.controller(t, on)
	c.Env = []string{"KUBE_FEATURE_WatchListClient=false"}
	c.Start(t)
	return c
}

// get asks the replica over HTTP, on the port of the Deployment.
func (c *controller) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	return get(t, c.on.Namespace, netip.AddrPortFrom(c.on.Addresses[0], 9471), path)
}

// metrics are the figures of the replica: "name{labels}" to value. One that is
// just being started again gets the time for that.
func (c *controller) metrics(t *testing.T) map[string]string {
	t.Helper()
	var body string
	eventually(t, func() string {
		var code int
		if code, body = c.get(t, "/metrics"); code != 200 {
			return fmt.Sprintf("/metrics: %d %s", code, body)
		}
		return ""
	})
	figures := map[string]string{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			figures[name] = value
		}
	}
	return figures
}

// leads is true while the replica says that it leads.
func (c *controller) leads(t *testing.T) bool {
	t.Helper()
	code, body := c.get(t, "/metrics")
	return code == 200 && strings.Contains(body, "\nvpcroute_leader 1\n")
}

func (c *controller) awaitLeading(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if c.leads(t) {
			return ""
		}
		return fmt.Sprintf("the controller on %s does not lead:\n%s", c.on.Name, c.Log())
	})
}

// holder is who holds the Lease.
func (s *site) holder(t *testing.T) string {
	t.Helper()
	var lease coordinationv1.Lease
	if err := s.Client.Get(t.Context(), controllerKey, &lease); err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// meet checks with packets, in both families, that exactly the pods of these
// nodes reach each other.
func (s *site) meet(t *testing.T, routed ...*netns.Node) {
	t.Helper()
	expected := netns.Expect(routed...)
	for _, r := range s.ClusterCIDRs {
		cells := netns.Matrix(t.Context(), s.Hosts(), r.Addr(), expected)
		for _, err := range netns.Judge(cells, expected) {
			t.Error(err)
		}
	}
}

// TestRoutesOfACluster is the main job on a real API server: Nodes come, their
// pods meet, Nodes go. It ends with what the service account may and did do.
func TestRoutesOfACluster(t *testing.T) {
	s := newSite(t, 3)
	s.meet(t)
	for _, n := range s.Nodes {
		s.register(t, n)
	}
	leader := s.start(t, s.Nodes[0])
	leader.awaitLeading(t)
	second := s.startListing(t, s.Nodes[1])
	s.awaitRoutes(t, s.Nodes...)
	for _, n := range s.Nodes {
		s.awaitStates(t, n.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
		s.awaitCondition(t, n.Name, corev1.ConditionFalse, "RouteReady")
	}
	s.meet(t, s.Nodes...)
	t.Run("what the objects say", func(t *testing.T) { testObjects(t, s) })
	t.Run("what the alerts are about is measured", func(t *testing.T) { testMeasured(t, leader) })
	t.Run("records deleted by hand", func(t *testing.T) { testRecordsDeleted(t, s) })

	gone := s.Nodes[2]
	s.unregister(t, gone)
	s.awaitRoutes(t, s.Nodes[:2]...)
	s.awaitStates(t, gone.Name)
	s.meet(t, s.Nodes[:2]...)
	s.awaitCondition(t, s.Nodes[0].Name, corev1.ConditionFalse, "RouteReady")

	s.readdress(t)
	t.Run("a second podCIDR of the same range", func(t *testing.T) { testDuplicate(t, s) })
	if err := leader.Stop(t); err != nil {
		t.Errorf("on SIGTERM: %v", err)
	}
	second.awaitLeading(t)
	s.awaitProof(t, second, 4)
	s.meet(t, s.Nodes[:2]...)
	t.Run("permissions", func(t *testing.T) { testPermissions(t, s) })
}

func testObjects(t *testing.T, s *site) {
	byNode := map[string][]string{}
	for _, row := range s.Table(t, "/apis/vpcroute.io/v1alpha1/vpcroutes") {
		node := fmt.Sprint(row["NODE"])
		byNode[node] = append(byNode[node], fmt.Sprintf("%v via %v %v", row["DESTINATION"], row["NEXT HOP"], row["STATE"]))
	}
	for _, n := range s.Nodes {
		var want []string
		for i, p := range n.PodCIDRs {
			want = append(want, fmt.Sprintf("%s via %s Verified", p, n.Addresses[i]))
		}
		slices.Sort(want)
		slices.Sort(byNode[n.Name])
		if !slices.Equal(byNode[n.Name], want) {
			t.Errorf("%s: printed %q, want %q", n.Name, byNode[n.Name], want)
		}
	}
	for _, r := range s.vpcRoutes(t) {
		st := r.Status
		if st.NextHop != r.Spec.NextHop || st.Table != r.Spec.Table || st.ObservedGeneration != r.Generation ||
			st.LastProofTime == nil || st.LastChangeTime == nil {
			t.Errorf("%s: status is %+v with spec %+v", r.Name, st, r.Spec)
		}
		if len(st.Conditions) != 2 {
			t.Errorf("%s: conditions are %v, want Programmed and Verified", r.Name, st.Conditions)
		}
		for _, c := range st.Conditions {
			if c.Status != "True" {
				t.Errorf("%s: condition %s is %s: %s", r.Name, c.Type, c.Status, c.Message)
			}
		}
	}
}

// testMeasured looks for every metric that an alert rule names.
func testMeasured(t *testing.T, leader *controller) {
	text, err := os.ReadFile("../../manifests/alerts/route-controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]bool{}
	for figure := range leader.metrics(t) {
		name, _, _ := strings.Cut(figure, "{")
		measured[name] = true
	}
	named := metricNames.FindAllString(string(text), -1)
	if len(named) == 0 {
		t.Fatal("the rules name no metric")
	}
	for _, name := range named {
		if !measured[name] {
			t.Errorf("no %s in /metrics, only %v", name, slices.Sorted(maps.Keys(measured)))
		}
	}
}

// testRecordsDeleted: losing the ledger costs no route, and it is written anew.
func testRecordsDeleted(t *testing.T, s *site) {
	writes := s.watchTable(t)
	before := s.vpcRoutes(t)
	for _, r := range before {
		if err := s.Client.Delete(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range s.Nodes {
		s.awaitStates(t, n.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
	}
	for _, r := range s.vpcRoutes(t) {
		if slices.ContainsFunc(before, func(b v1alpha1.VPCRoute) bool { return b.UID == r.UID }) {
			t.Errorf("%s is still the one that was deleted", r.Name)
		}
	}
	if w := writes(); len(w) > 0 {
		t.Errorf("the table was written to: %v", w)
	}
}

// readdress gives the second machine other addresses, as when it was stopped and
// started: the record follows before the route does.
func (s *site) readdress(t *testing.T) {
	t.Helper()
	n := s.Nodes[1]
	if err := s.Readdress(n, netip.MustParseAddr("172.31.0.77"), netip.MustParseAddr("fd00:172:31::77")); err != nil {
		t.Fatal(err)
	}
	s.serve(t, &n.Host)
	s.tellAddresses(t, n)
	s.awaitRoutes(t, s.Nodes[:2]...)
	eventually(t, func() string {
		for _, r := range s.vpcRoutes(t) {
			if r.Spec.NodeName == n.Name && (r.Status.NextHop != r.Spec.NextHop || !strings.Contains(r.Spec.NextHop, "77") || len(r.Spec.PreviousNextHops) > 0) {
				return fmt.Sprintf("%s: spec is %+v, status %+v", r.Name, r.Spec, r.Status)
			}
		}
		return ""
	})
	s.awaitStates(t, n.Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
}

// R079: the holder keeps the range, the second Node is told so.
func testDuplicate(t *testing.T, s *site) {
	writes := s.watchTable(t)
	second := &netns.Node{Host: netns.Host{Name: "node-9", Addresses: s.Nodes[2].Addresses}, PodCIDRs: s.Nodes[0].PodCIDRs}
	s.register(t, second)
	condition := s.awaitCondition(t, second.Name, corev1.ConditionTrue, "PodCIDRTaken")
	if !strings.Contains(condition.Message, s.Nodes[0].Name) {
		t.Errorf("the message names not the holder: %s", condition.Message)
	}
	s.awaitStates(t, second.Name, v1alpha1.StateDuplicate, v1alpha1.StateDuplicate)
	s.awaitEvent(t, second.Name, "PodCIDRTaken")
	s.unregister(t, second)
	s.awaitStates(t, second.Name)
	if w := writes(); len(w) > 0 {
		t.Errorf("the table was written to: %v", w)
	}
	s.awaitStates(t, s.Nodes[0].Name, v1alpha1.StateVerified, v1alpha1.StateVerified)
}

// testPermissions compares what the controller did with what it may do.
func testPermissions(t *testing.T, s *site) {
	did, didNot := s.Used(t, controllerAccount)
	if len(didNot) > 0 {
		t.Errorf("the manifests do not allow what the controller needs: %v", didNot)
	}
	if unused := cluster.Unused(s.Granted(t, controllerAccount), did); len(unused) > 0 {
		t.Errorf("the manifests allow what the controller does not need: %v", unused)
	}
}
