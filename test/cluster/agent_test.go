package cluster_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vpcroute/vpcroute/test/cluster"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

var agentAccount = cluster.Account{Namespace: "vpcroute-system", Name: "node-agent"}

// TestAgentPermissions runs the agent as a process under its service account,
// through all that it asks the API server for: it follows its Node, in both ways
// that clients follow objects, and says twice that another configuration wins.
func TestAgentPermissions(t *testing.T) {
	c := cluster.Start(t, cluster.Where{})
	c.Apply(t, base)
	if out, err := exec.Command("sh", "-ec", "ip link add uplink type veth peer name other; ip link set other up; ip address add 172.31.0.11/24 dev uplink; ip link set uplink up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "ip link del uplink; ip link del cbr0").Run() })
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24"}}}
	if err := c.Client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.0.11"}}
	if err := c.Client.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	conf := filepath.Join(root, "net.d")
	a := agentProcess(t, c, n.Name, root)
	a.Env = []string{"KUBE_FEATURE_WatchListClient=false"} // it lists
	a.Start(t)
	awaitAgent(t, a)
	if err := a.Stop(t); err != nil {
		t.Errorf("on SIGTERM: %v", err)
	}
	a.Env = nil
	a.Start(t)
	awaitAgent(t, a)
	rival := filepath.Join(conf, "00-rival.conf")
	const fit = "the node is fit for pods"
	for count := 1; count <= 2; count++ {
		before := strings.Count(a.Log(), fit)
		if err := os.WriteFile(rival, []byte(`{"cniVersion": "1.0.0", "name": "rival", "type": "rival"}`), 0o644); err != nil {
			t.Fatal(err)
		}
		awaitCount(t, c, n.Name, "00-rival.conf", count)
		if err := os.Remove(rival); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if strings.Count(a.Log(), fit) > before {
				return ""
			}
			return "the agent does not see that the rival is gone:\n" + a.Log()
		})
	}
	did, didNot := c.Used(t, agentAccount)
	if len(didNot) > 0 {
		t.Errorf("the manifests do not allow what the agent needs: %v", didNot)
	}
	if unused := cluster.Unused(c.Granted(t, agentAccount), did); len(unused) > 0 {
		t.Errorf("the manifests allow what the agent does not need: %v", unused)
	}
}

// agentProcess is the agent with the DaemonSet's arguments, on the folders of a
// machine below root.
func agentProcess(t *testing.T, c *cluster.Cluster, node, root string) *cluster.Process {
	t.Helper()
	var d appsv1.DaemonSet
	if err := c.Client.Get(t.Context(), keyIn(agentAccount.Namespace, "node-agent"), &d); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vpcroute", "portmap", "bandwidth", "loopback"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "/host/", "/"))
	}
	args = append(args, "--node-name="+node, "--kubeconfig="+c.Kubeconfig(t, agentAccount), "--period=1s",
		"--source="+source, "--bin-dir="+filepath.Join(root, "bin"), "--conf-dir="+filepath.Join(root, "net.d"),
		"--cni-log-file="+filepath.Join(root, "cni.log"), "--cni-state-dir="+filepath.Join(root, "state"))
	return cluster.NewProcess(t, nil, sandbox.Build(t, "./cmd/node-agent"), args...)
}

// awaitAgent waits until the agent has made this machine ready.
func awaitAgent(t *testing.T, a *cluster.Process) {
	t.Helper()
	eventually(t, func() string {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", agentPort))
		if err != nil {
			return fmt.Sprintf("the agent does not answer: %v\n%s", err, a.Log())
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return ""
		}
		return fmt.Sprintf("the agent is not ready: %s\n%s", response.Status, a.Log())
	})
}

// awaitCount waits until a Node's Event of a message has been seen so often.
func awaitCount(t *testing.T, c *cluster.Cluster, node, message string, count int) {
	t.Helper()
	eventually(t, func() string {
		var list corev1.EventList
		if err := c.Client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == node && strings.Contains(e.Message, message) && int(e.Count) >= count {
				return ""
			}
			seen = append(seen, fmt.Sprintf("%s %d times", e.Message, e.Count))
		}
		return fmt.Sprintf("no Event of %s, %d times, only %q", message, count, seen)
	})
}
