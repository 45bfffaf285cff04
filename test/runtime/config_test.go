package runtime_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
)

func TestConfigurationChangedUnderPods(t *testing.T) {
	n := startNode(t, chained)
	before := settled(t, n)
	bad := alone
	bad.ranges = []string{"10.244.1.0/33"}
	older := chained
	older.version = "0.4.0"
	for _, tc := range []struct {
		situation     string
		first, second conflist
	}{
		{"other ranges", alone, conflist{ranges: []string{"10.9.0.0/24", "fd00:9::/64"}}},
		{"one family less", alone, conflist{ranges: dualStack[:1]}},
		{"ranges that cannot be read", alone, bad},
		{"plugins added after it", alone, chained},
		{"plugins taken away", chained, alone},
		{"another version", chained, older},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			n.Configure(t, tc.first.bytes(n))
			s := run(t, n, pod("web"))

			n.Configure(t, tc.second.bytes(n))
			remove(t, n, s.ID)
			checkInventory(t, n, before)
		})
	}
}

// R056: without a configuration the runtime itself refuses to remove a pod.
// What the plugin owes is that the pods can go as soon as there is one again.
func TestConfigurationRemovedAndBack(t *testing.T) {
	n := startNode(t, chained)
	before := settled(t, n)
	removed := run(t, n, pod("removed-without"))
	kept := run(t, n, pod("kept"))

	n.Unconfigure(t)
	if _, err := n.Run(t.Context(), pod("new")); err == nil || !strings.Contains(err.Error(), "cni") {
		t.Errorf("run a pod without a configuration: error %v, want one that names it", err)
	}
	if err := n.Remove(t.Context(), removed.ID); err == nil {
		t.Error("the runtime has removed a pod without a configuration: then it need not be put back first")
	}

	n.Configure(t, chained.bytes(n))
	remove(t, n, removed.ID)
	checkDistinct(t, kept, run(t, n, pod("newer")))
	removeFailed(t, n)
	checkInventory(t, n, before)
}

// R055: the agent writes configuration and program again, by renaming them into
// place, while pods come and go: none of them notices.
func TestInstalledAgainUnderLoad(t *testing.T) {
	n := startNode(t, alone)
	before := settled(t, n)
	done := make(chan struct{})
	stopped := make(chan error)
	go func() {
		for {
			select {
			case <-done:
				stopped <- nil
				return
			default:
			}
			if err := n.WriteConfig(alone.bytes(n)); err != nil {
				stopped <- err
				return
			}
			if err := reinstall(); err != nil {
				stopped <- err
				return
			}
		}
	}()
	removeAll(t, n, runAll(t, n, numbered("web", 10)...))
	close(done)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	checkInventory(t, n, before)
}

func reinstall() error {
	program := filepath.Join(programDir, "vpcroute")
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(program+".new", data, 0o755); err != nil {
		return err
	}
	return os.Rename(program+".new", program)
}

// The runtime never asks for a CHECK; this asks in its place, by the library it
// uses, with what it has cached. R030: an intact pod passes with no agent there,
// a broken one is told apart and the difference named.
func TestCheck(t *testing.T) {
	n := startNode(t, chained)
	before := settled(t, n)
	for _, tc := range []struct {
		situation string
		harm      func(*cri.Sandbox) error
		want      func(*cri.Sandbox) string // empty: the check succeeds
	}{
		{
			"an intact pod",
			func(*cri.Sandbox) error { return nil },
			func(*cri.Sandbox) string { return "" },
		},
		{
			"an address is gone",
			func(s *cri.Sandbox) error { return ip(inPod(s), "-6 address flush dev eth0 scope global") },
			func(s *cri.Sandbox) string { return s.Addresses[1].String() },
		},
		{
			"the default route is gone",
			func(s *cri.Sandbox) error { return ip(inPod(s), "route delete default") },
			func(*cri.Sandbox) string { return "0.0.0.0/0" },
		},
		{
			"the host veth is off the bridge",
			func(s *cri.Sandbox) error {
				return ip(n.Network.Do, "link set dev "+altname(s.Addresses[0])+" nomaster")
			},
			func(*cri.Sandbox) string { return "cbr0" },
		},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			p := pod("web")
			p.Ports = []cri.Port{{Host: 18080, Pod: 8080}}
			s := run(t, n, p)
			defer remove(t, n, s.ID)
			if err := tc.harm(s); err != nil {
				t.Fatal(err)
			}
			err := check(t.Context(), n, s)
			switch want := tc.want(s); {
			case want == "" && err != nil:
				t.Errorf("check: %v", err)
			case want != "" && err == nil:
				t.Errorf("check succeeds, want an error with %q in it", want)
			case want != "" && !strings.Contains(err.Error(), want):
				t.Errorf("check: %v, want %q in it", err, want)
			}
		})
	}
	checkInventory(t, n, before)
}

func ip(in enter, args string) error {
	return in(func() error {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
}

// check asks the plugins of the node's configuration whether a pod is as they
// made it.
func check(ctx context.Context, n *cri.Node, s *cri.Sandbox) error {
	list, err := libcni.NetworkConfFromBytes(chained.bytes(n))
	if err != nil {
		return err
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{programDir}, cri.CacheDir, nil)
	_, rt, err := cni.GetNetworkListCachedConfig(list, &libcni.RuntimeConf{ContainerID: s.ID, NetNS: s.Netns, IfName: "eth0"})
	if err != nil {
		return err
	}
	return n.Network.Do(func() error { return cni.CheckNetworkList(ctx, list, rt) })
}
