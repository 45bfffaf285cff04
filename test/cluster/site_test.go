package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/test/cluster"
	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// overlay is what an operator of the box applies.
const overlay = "testdata/overlay"

// patience bounds every wait for what must happen.
const patience = 2 * time.Minute

// A site is a VPC in a box that holds a cluster: its last machine is the
// control plane, the others are nodes with one pod each, and the manifests are
// applied. The Nodes are not registered yet.
type site struct {
	*netns.Box
	*cluster.Cluster
	agents map[string]*agent
}

func newSite(t *testing.T, nodes int) *site {
	t.Helper()
	return newSiteOf(t, overlay, nodes)
}

// newSiteOf is newSite with other manifests.
func newSiteOf(t *testing.T, overlay string, nodes int) *site {
	t.Helper()
	box, err := netns.Raise(netns.Config{Parent: "/run", Programs: programs(t), Nodes: nodes + 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the VPC's routes:\n%s\n%s", box.Router.Run(t, "ip", "route"), box.Router.Run(t, "ip", "-6", "route"))
		}
		if err := box.TearDown(); err != nil {
			t.Error(err)
		}
	})
	plane := box.Nodes[nodes]
	box.Nodes = box.Nodes[:nodes]
	s := &site{Box: box, agents: map[string]*agent{}}
	s.Cluster = cluster.Start(t, cluster.Where{Namespace: plane.Namespace, Address: plane.Addresses[0]})
	s.Apply(t, overlay)
	for i, n := range box.Nodes {
		if _, err := n.Attach(t.Context(), fmt.Sprintf("pod-%d", i+1)); err != nil {
			t.Fatal(err)
		}
		s.agents[n.Name] = startAgent(t, n)
	}
	s.serve(t, box.Hosts()...)
	return s
}

// serve has hosts answer whoever asks them.
func (s *site) serve(t *testing.T, hosts ...*netns.Host) {
	t.Helper()
	servers, err := netns.Serve(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
}

// programs builds the plugin and the controller and returns where they are.
func programs(t *testing.T) string {
	t.Helper()
	dir := "/run/installed"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"vpcroute": "./cmd/cni", "route-controller": "./cmd/route-controller"} {
		if err := os.Symlink(sandbox.Build(t, from), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return dir
}

// register makes the Node object of a machine, as its kubelet and the podCIDR
// allocator would, and has the machine's agent know its UID.
func (s *site) register(t *testing.T, n *netns.Node, edits ...func(*corev1.Node)) *corev1.Node {
	t.Helper()
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	for _, p := range n.PodCIDRs {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, p.String())
	}
	o.Spec.PodCIDR = o.Spec.PodCIDRs[0]
	for _, a := range n.Addresses {
		o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	for _, edit := range edits {
		edit(o)
	}
	if err := s.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if a := s.agents[n.Name]; a != nil {
		a.uid.Store(string(o.UID))
	}
	return o
}

// tellAddresses writes a machine's addresses into its Node object.
func (s *site) tellAddresses(t *testing.T, n *netns.Node) {
	t.Helper()
	addresses := []corev1.NodeAddress{}
	for _, a := range n.Addresses {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": addresses}})
	if err != nil {
		t.Fatal(err)
	}
	// A merge replaces the whole list.
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if err := s.Client.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// unregister deletes the Node object.
func (s *site) unregister(t *testing.T, n *netns.Node) {
	t.Helper()
	if err := s.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}); err != nil {
		t.Fatal(err)
	}
}

// networkUnavailable returns a node's condition, or nil when it has none.
func (s *site) networkUnavailable(t *testing.T, node string) *corev1.NodeCondition {
	t.Helper()
	var o corev1.Node
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: node}, &o); err != nil {
		t.Fatal(err)
	}
	return conditionOf(&o)
}

func conditionOf(o *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeNetworkUnavailable })
	if i < 0 {
		return nil
	}
	return &o.Status.Conditions[i]
}

// awaitCondition waits until a node's condition has a status, and a reason
// unless that is empty.
func (s *site) awaitCondition(t *testing.T, node string, status corev1.ConditionStatus, reason string) *corev1.NodeCondition {
	t.Helper()
	var condition *corev1.NodeCondition
	eventually(t, func() string {
		condition = s.networkUnavailable(t, node)
		if condition == nil || condition.Status != status || reason != "" && condition.Reason != reason {
			return fmt.Sprintf("%s: NetworkUnavailable is %+v, want %s %s", node, condition, status, reason)
		}
		return ""
	})
	return condition
}

// awaitRoutes waits until the VPC's table leads to exactly these nodes.
func (s *site) awaitRoutes(t *testing.T, nodes ...*netns.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.AwaitRoutes(ctx, netns.RoutesTo(nodes...)...); err != nil {
		t.Fatal(err)
	}
}

// vpcRoutes returns all VPCRoutes.
func (s *site) vpcRoutes(t *testing.T) []v1alpha1.VPCRoute {
	t.Helper()
	var list v1alpha1.VPCRouteList
	if err := s.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// awaitStates waits until the VPCRoutes of a node have these states, in any
// order.
func (s *site) awaitStates(t *testing.T, node string, want ...v1alpha1.State) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() string {
		var got []v1alpha1.State
		for _, r := range s.vpcRoutes(t) {
			if r.Spec.NodeName == node {
				got = append(got, r.Status.State)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("the VPCRoutes of %s are %v, want %v", node, got, want)
		}
		return ""
	})
}

// eventually waits until a condition holds; its last answer is the complaint.
func eventually(t *testing.T, condition func() (complaint string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		complaint := condition()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// agentPort is where the node agent answers.
const agentPort = 9470

// An agent answers the controller's proof as the node agent does, on every
// address of its machine.
type agent struct {
	uid    atomic.Value // string
	silent atomic.Bool
}

func startAgent(t *testing.T, n *netns.Node) *agent {
	t.Helper()
	a := &agent{}
	a.uid.Store("")
	var listener net.Listener
	err := n.Namespace.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", agentPort))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/whoami" || a.silent.Load() {
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"node": n.Name, "uid": a.uid.Load(), "podCIDRs": n.PodCIDRs, "bootID": "8d3f0c53-0000-4000-8000-000000000000",
		})
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return a
}

// get asks a program inside a machine's namespace over HTTP.
func get(t *testing.T, in *sandbox.Namespace, address netip.AddrPort, path string) (code int, body string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
		err = in.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, to)
			return err
		})
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	response, err := c.Get("http://" + address.String() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// metricNames finds the metrics of the controller in a text.
var metricNames = regexp.MustCompile(`\bvpcroute_[a-z_]+`)

func keyIn(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// awaitEvent waits until a Node has an Event with a reason.
func (s *site) awaitEvent(t *testing.T, node, reason string) {
	t.Helper()
	eventually(t, func() string {
		var list eventsv1.EventList
		if err := s.Client.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, e := range list.Items {
			if e.Regarding.Name == node && e.Reason == reason {
				return ""
			}
			seen = append(seen, e.Regarding.Name+" "+e.Reason)
		}
		return fmt.Sprintf("no Event %s of %s, only %q", reason, node, seen)
	})
}

// watchTable follows the VPC's route table; the returned function ends that and
// returns what was written to it, the nodes' own addresses apart.
func (s *site) watchTable(t *testing.T) (writes func() []string) {
	t.Helper()
	updates, done := make(chan netlink.RouteUpdate, 1024), make(chan struct{})
	err := s.Router.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { close(done) })
	t.Cleanup(end)
	return func() (seen []string) {
		// A write of the kernel is announced before the writer goes on, so all
		// that is to be seen is in the socket already.
		for {
			select {
			case u := <-updates:
				if s.concernsPods(u.Dst) {
					seen = append(seen, fmt.Sprintf("%s %s", map[uint16]string{unix.RTM_NEWROUTE: "add", unix.RTM_DELROUTE: "delete"}[u.Type], u.Route))
				}
			case <-time.After(200 * time.Millisecond):
				end()
				return seen
			}
		}
	}
}

func (s *site) concernsPods(dst *net.IPNet) bool {
	if dst == nil {
		return false
	}
	a, _ := netip.AddrFromSlice(dst.IP)
	return slices.ContainsFunc(s.ClusterCIDRs, func(r netip.Prefix) bool { return r.Contains(a.Unmap()) })
}
