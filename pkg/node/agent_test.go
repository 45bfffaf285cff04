package node_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// A host is a node with an uplink whose agent can be run, and the built plugin.
type host struct {
	*sandbox.Namespace
	agent *node.Agent
	node  node.Node
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{Namespace: sandbox.New(t, "node")}
	beyond := sandbox.New(t, "beyond")
	for _, args := range []string{
		"link add uplink mtu 8500 type veth peer name eth0 mtu 8500 netns " + beyond.Name,
		"link set uplink up",
		"addr add 172.31.0.2/24 dev uplink",
		"addr add fd00:172:31::2/64 dev uplink nodad",
	} {
		h.Run(t, "ip", strings.Fields(args)...)
	}
	i := installation(t)
	program, err := os.ReadFile(sandbox.Build(t, "./cmd/cni"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(i.Source, "vpcroute"), string(program))
	h.agent = &node.Agent{
		Installation: i, Kernel: node.Kernel{Root: "/proc/sys"}, Bridge: "cbr0", CNIVersion: "1.1.0",
	}
	h.node = node.Node{
		Name: "n1", UID: "u1", MaxPods: 110,
		PodCIDRs:  []netip.Prefix{prefix("10.244.1.0/24"), prefix("fd00:10:244:1::/64")},
		Addresses: []netip.Addr{netip.MustParseAddr("172.31.0.2"), netip.MustParseAddr("fd00:172:31::2")},
	}
	return h
}

func (h *host) reconcile(t *testing.T) node.Report {
	t.Helper()
	r, err := h.try()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (h *host) try() (r node.Report, err error) {
	err = h.Do(func() error {
		if h.agent.Firewall == nil {
			if h.agent.Firewall, err = node.NewNFTables(); err != nil {
				return err
			}
		}
		r, err = h.agent.Reconcile(h.node)
		return err
	})
	return r, err
}

// plugin runs our plugin as a runtime would, from the installed conflist.
func (h *host) plugin(t *testing.T, pod *sandbox.Namespace, verb func(*libcni.CNIConfig, *libcni.NetworkConfigList, *libcni.RuntimeConf) error) error {
	t.Helper()
	list, err := libcni.ConfListFromFile(filepath.Join(h.agent.Installation.ConfDir, node.ConflistName))
	if err != nil {
		t.Fatal(err)
	}
	list.Plugins = list.Plugins[:1] // the chained ones are not built here
	cni := libcni.NewCNIConfigWithCacheDir([]string{h.agent.Installation.BinDir}, t.TempDir(), nil)
	return h.Do(func() error {
		return verb(cni, list, &libcni.RuntimeConf{ContainerID: pod.Name, NetNS: pod.Path(), IfName: "eth0"})
	})
}

func add(c *libcni.CNIConfig, l *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	_, err := c.AddNetworkList(context.Background(), l, rt)
	return err
}

func del(c *libcni.CNIConfig, l *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	return c.DelNetworkList(context.Background(), l, rt)
}

func TestReconcileBringsUpANodeThatServesPods(t *testing.T) {
	h := newHost(t)
	r := h.reconcile(t)
	if !r.Ready || r.Waiting != "" || r.Link != (node.Link{Name: "uplink", MTU: 8500}) {
		t.Errorf("%+v", r)
	}
	pod := sandbox.New(t, "pod")
	if err := h.plugin(t, pod, add); err != nil {
		t.Fatal(err)
	}
	if out := pod.Run(t, "ip", "-o", "link", "show", "eth0"); !strings.Contains(out, "mtu 8500") {
		t.Errorf("the pod's MTU is not the uplink's: %s", out)
	}
	status := func(c *libcni.CNIConfig, l *libcni.NetworkConfigList, _ *libcni.RuntimeConf) error {
		return c.GetStatusNetworkList(context.Background(), l)
	}
	if err := h.plugin(t, pod, status); err != nil && !strings.Contains(err.Error(), "br_netfilter") {
		t.Errorf("STATUS on a reconciled node: %v", err)
	}
	again := h.reconcile(t)
	if len(again.Changed) != 0 || !again.Ready {
		t.Errorf("the second pass changed %v", again.Changed)
	}
}

// TestR048ConflistComesLast checks the order on disk, by failing
// each step on the way.
func TestR048ConflistComesLast(t *testing.T) {
	confDir := func(h *host) []string {
		if _, err := os.Stat(h.agent.Installation.ConfDir); err != nil {
			return nil
		}
		return names(t, h.agent.Installation.ConfDir)
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, h *host)
		want  string
	}{
		"no podCIDR yet": {func(_ *testing.T, h *host) { h.node.PodCIDRs = nil }, ""},
		"programs are missing": {func(t *testing.T, h *host) {
			if err := os.Remove(filepath.Join(h.agent.Installation.Source, "portmap")); err != nil {
				t.Fatal(err)
			}
		}, "portmap"},
		"node's address is nowhere": {func(_ *testing.T, h *host) { h.node.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.9")} }, "192.0.2.9"},
		"bridge's name is taken":    {func(t *testing.T, h *host) { h.Run(t, "ip", "link", "add", "cbr0", "type", "veth") }, "cbr0"},
		"packet filter refuses":     {func(_ *testing.T, h *host) { h.agent.Firewall = refusing{} }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			c.spoil(t, h)
			r, err := h.try()
			if r.Ready {
				t.Error("ready all the same")
			}
			if c.want == "" && (err != nil || !strings.Contains(r.Waiting, "no podCIDR yet")) {
				t.Errorf("%v, waiting %q", err, r.Waiting)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v does not name %q", err, c.want)
			}
			if got := confDir(h); len(got) != 0 {
				t.Errorf("configuration is there already: %v", got)
			}
		})
	}
}

type refusing struct{}

func (refusing) Ensure(node.Masquerade) (bool, error) { return false, fmt.Errorf("refused") }
func (refusing) Remove() error                        { return fmt.Errorf("refused") }

// TestR055RestartWithoutTheAPIServer has an agent come back that knows neither
// podCIDRs nor addresses: nothing changes, and the conflist stays.
func TestR055RestartWithoutTheAPIServer(t *testing.T) {
	h := newHost(t)
	h.Run(t, "ip", "route", "add", "default", "via", "172.31.0.1")
	h.reconcile(t)
	h.node = node.Node{}
	r := h.reconcile(t)
	if !r.Ready || len(r.Changed) != 0 {
		t.Errorf("ready %v, changed %v", r.Ready, r.Changed)
	}
}

func TestChangedPodCIDRWaitsForTheOldPods(t *testing.T) {
	h := newHost(t)
	h.reconcile(t)
	old := sandbox.New(t, "old")
	if err := h.plugin(t, old, add); err != nil {
		t.Fatal(err)
	}
	h.node.PodCIDRs = []netip.Prefix{prefix("10.244.9.0/24"), prefix("fd00:10:244:9::/64")}
	h.reconcile(t)
	gateways := func() []string {
		var got []string
		for _, w := range strings.Fields(h.Run(t, "ip", "-o", "addr", "show", "dev", "cbr0", "scope", "global")) {
			if p, err := netip.ParsePrefix(w); err == nil {
				got = append(got, p.Addr().String())
			}
		}
		slices.Sort(got)
		return got
	}
	if d := cmp.Diff([]string{"10.244.1.1", "10.244.9.1", "fd00:10:244:1::1", "fd00:10:244:9::1"}, gateways()); d != "" {
		t.Errorf("with an old pod alive: %s", d)
	}
	if got := seenFrom(t, old, h.Namespace, "10.244.1.1"); !strings.HasPrefix(got, "10.244.1.") {
		t.Errorf("the old pod has lost its gateway: %s", got)
	}
	fresh := sandbox.New(t, "fresh")
	if err := h.plugin(t, fresh, add); err != nil {
		t.Fatal(err)
	}
	if out := fresh.Run(t, "ip", "-o", "-4", "addr", "show", "eth0"); !strings.Contains(out, "10.244.9.") {
		t.Errorf("a new pod got %s", out)
	}
	if err := h.plugin(t, old, del); err != nil {
		t.Fatal(err)
	}
	r := h.reconcile(t)
	if d := cmp.Diff([]string{"10.244.9.1", "fd00:10:244:9::1"}, gateways()); d != "" {
		t.Errorf("after the last old pod: %s (%v)", d, r.Changed)
	}
}

func TestMaxPodsBeyondTheRangeIsSaid(t *testing.T) {
	h := newHost(t)
	h.node.PodCIDRs = []netip.Prefix{prefix("10.244.1.0/26")}
	r := h.reconcile(t)
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "max-pods is 110") && strings.Contains(w, "61 pods") }) {
		t.Errorf("warnings: %v", r.Warnings)
	}
}

// TestR056UninstallWaitsForThePods checks the order: configuration at once, the
// rest when the last pod is gone, and a second run finds nothing to do.
func TestR056UninstallWaitsForThePods(t *testing.T) {
	h := newHost(t)
	h.reconcile(t)
	pod := sandbox.New(t, "pod")
	if err := h.plugin(t, pod, add); err != nil {
		t.Fatal(err)
	}
	uninstall := func() (left string) {
		t.Helper()
		if err := h.Do(func() (err error) { left, err = h.agent.Uninstall(); return err }); err != nil {
			t.Fatal(err)
		}
		return left
	}
	if left := uninstall(); !strings.Contains(left, "1 pods are still attached") {
		t.Errorf("with a pod: %q", left)
	}
	if got := names(t, h.agent.Installation.ConfDir); len(got) != 0 {
		t.Errorf("configuration left: %v", got)
	}
	if got := seenFrom(t, pod, h.Namespace, "10.244.1.1"); !strings.HasPrefix(got, "10.244.1.") {
		t.Errorf("the pod has lost its traffic: %s", got)
	}
	if err := pod.Delete(); err != nil {
		t.Fatal(err)
	}
	for i := 0; uninstall() != ""; i++ {
		if i == 1000 {
			t.Fatal("the port of a dead pod never goes")
		}
	}
	if left := uninstall(); left != "" {
		t.Errorf("second run: %q", left)
	}
	if got := names(t, h.agent.Installation.BinDir); !slices.Equal(got, []string{node.Loopback}) {
		t.Errorf("programs left: %v", got)
	}
	if out := h.Run(t, "ip", "-o", "link"); strings.Contains(out, "cbr0") || strings.Contains(out, "pod") {
		t.Errorf("links left:\n%s", out)
	}
	if out := h.Run(t, "nft", "list", "ruleset"); out != "" {
		t.Errorf("rules left:\n%s", out)
	}
}

// TestR090AddressesAreCounted has pods, a released address and a port whose
// attachment was broken off.
func TestR090AddressesAreCounted(t *testing.T) {
	h := newHost(t)
	h.node.PodCIDRs = []netip.Prefix{prefix("10.244.1.0/24")}
	h.reconcile(t)
	var pods []*sandbox.Namespace
	for range 4 {
		pod := sandbox.New(t, "pod")
		pods = append(pods, pod)
		if err := h.plugin(t, pod, add); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.plugin(t, pods[0], del); err != nil {
		t.Fatal(err)
	}
	port := strings.Fields(h.Run(t, "ip", "-o", "link", "show", "master", "cbr0"))[1]
	h.Run(t, "ip", "link", "set", strings.Split(port, "@")[0], "alias", "")
	var got node.Addresses
	if err := h.Do(func() (err error) {
		got, err = node.CountAddresses("cbr0", "/run/vpcroute", h.node.PodCIDRs)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := (node.Addresses{Usable: 253, Claimed: 3, Cooling: 1, Orphaned: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}
