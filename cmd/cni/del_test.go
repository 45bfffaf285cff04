package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// R011, R028, R029: whatever has become of the pod, its namespace, its result or
// the configuration, DEL succeeds, says nothing, and leaves nothing.
func TestDELAlwaysSucceeds_R011_R028_R029(t *testing.T) {
	type setting struct {
		node  *node
		pod   *pod
		other *pod
		added answer
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no namespace"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := func(pairs ...any) func(*testing.T, setting, *request) {
		return func(_ *testing.T, _ setting, r *request) {
			r.conf = map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				r.conf[pairs[i].(string)] = pairs[i+1]
			}
		}
	}
	netns := func(path string) func(*testing.T, setting, *request) {
		return func(_ *testing.T, _ setting, r *request) { r.netns = path }
	}
	foreignResult := map[string]any{
		"cniVersion": "1.0.0", "interfaces": []any{map[string]any{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/none"}},
		"ips": []any{map[string]any{"address": "192.0.2.9/24", "interface": 0}, map[string]any{"address": "nonsense"}},
	}
	tests := map[string]func(*testing.T, setting, *request){
		"as it should be":      func(*testing.T, setting, *request) {},
		"netns empty":          netns(""),
		"netns missing":        netns("/run/netns/none"),
		"netns a plain file":   netns(plain),
		"netns a directory":    netns("/run"),
		"netns another pod's":  func(_ *testing.T, s setting, r *request) { r.netns = s.other.Path() },
		"netns the node's own": func(_ *testing.T, s setting, r *request) { r.netns = s.node.Path() },
		"netns died":           func(t *testing.T, s setting, _ *request) { s.pod.Run(t, "true"); s.pod.Delete() },
		"interface gone":       func(t *testing.T, s setting, _ *request) { s.pod.Run(t, "ip", "link", "del", "eth0") },
		"interface renamed": func(t *testing.T, s setting, _ *request) {
			s.pod.Run(t, "ip", "link", "set", "eth0", "down", "name", "eth9")
		},
		"host veth off the bridge": func(t *testing.T, s setting, _ *request) {
			s.node.Run(t, "ip", "link", "set", "10.244.1.2", "nomaster")
		},
		"bridge gone":                func(t *testing.T, s setting, _ *request) { s.node.Run(t, "ip", "link", "del", "cbr0") },
		"prevResult as it was":       func(t *testing.T, s setting, r *request) { r.conf = map[string]any{"prevResult": previous(t, s.added)} },
		"prevResult null":            func(_ *testing.T, _ setting, r *request) { r.stdin = `null-prev` },
		"prevResult empty":           conf("prevResult", map[string]any{}),
		"prevResult foreign":         conf("prevResult", foreignResult),
		"prevResult of version 0.2":  conf("prevResult", map[string]any{"cniVersion": "0.2.0", "ip4": map[string]any{"ip": "10.244.1.2/24"}}),
		"prevResult of version 9":    conf("prevResult", map[string]any{"cniVersion": "9.0.0", "ips": map[string]any{"new": true}}),
		"prevResult a string":        conf("prevResult", "lost"),
		"podCIDRs missing":           conf("podCIDRs", nil),
		"podCIDRs changed":           conf("podCIDRs", []string{"10.77.0.0/24"}),
		"podCIDRs nonsense":          conf("podCIDRs", []string{"10.244.1.0/99", "x"}),
		"podCIDRs a number":          conf("podCIDRs", 7),
		"unknown field":              conf("colour", "red"),
		"another bridge":             conf("bridge", "cbr9"),
		"bridge nonsense":            conf("bridge", "a/b"),
		"state directory nonsense":   conf("stateDir", plain),
		"log nonsense":               conf("logFile", "/proc/none/cni.log"),
		"hairpin and MTU changed":    conf("hairpinMode", false, "mtu", 1400),
		"an older protocol version":  conf("cniVersion", "0.3.1"),
		"arguments nonsense":         func(_ *testing.T, _ setting, r *request) { r.args = ";;=;K8S_POD_NAME" },
		"everything wrong together":  conf("podCIDRs", "x", "prevResult", 7, "bridge", "a/b", "stateDir", "rel", "mtu", "big"),
		"another network, same name": conf("podCIDRs", []string{"fd00:9::/64"}),
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nil)
			p, other := n.newPod(t), n.newPod(t)
			s := setting{n, p, other, p.add(t)}
			other.add(t)
			r := p.request("DEL")
			spoil(t, s, &r)
			if r.stdin == "null-prev" {
				r.stdin = strings.Replace(n.stdin(t, request{}), "{", `{"prevResult": null,`, 1)
			}
			for _, time := range []string{"first", "second"} {
				if a := n.call(t, r); a.err != nil || a.stdout != "" {
					t.Errorf("%s DEL: %v\n%s", time, a.err, a.stdout)
				}
			}
			if has(t, n.Namespace, "10.244.1.2") || has(t, n.Namespace, "fd00-10-244-1--2") || has(t, n.Namespace, owner(p).PortName()) {
				t.Errorf("left: %v", n.ports(t))
			}
			if name != "bridge gone" && (!has(t, n.Namespace, "10.244.1.3") || !has(t, other.Namespace, "eth0")) {
				t.Error("another pod is gone too")
			}
		})
	}
}

// R027: after a reboot the runtime deletes what it had before, all at once and
// without namespaces, while new pods start. No call is held up or disturbed.
func TestDELsOfThePreviousBoot_R027(t *testing.T) {
	n := newNode(t, nil)
	live := n.newPod(t)
	live.add(t)
	var pods []*pod
	for range 10 {
		pods = append(pods, n.newPod(t))
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			a := n.call(t, request{
				verb: "DEL", container: fmt.Sprintf("of-the-previous-boot-%d", i), ifName: "eth0",
				conf: map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": fmt.Sprintf("10.244.1.%d/24", 2+i)}}}},
			})
			if a.err != nil {
				t.Errorf("DEL: %s", a.stdout)
			}
		})
	}
	for _, p := range pods {
		all.Go(func() {
			if a := n.call(t, p.request("ADD")); a.err != nil {
				t.Errorf("ADD: %s", a.stdout)
			}
		})
	}
	all.Wait()
	if got := len(n.ports(t)); got != 11 {
		t.Errorf("%d ports, want those of 11 pods: %v", got, n.ports(t))
	}
	if !has(t, live.Namespace, "eth0") || !has(t, n.Namespace, "10.244.1.2") {
		t.Error("the pod that was there is not any more")
	}
}

// R001: a reboot frees every address, whatever is kept on disk, and a range that
// is just large enough never runs dry.
func TestRebootsFreeEverything_R001(t *testing.T) {
	state := filepath.Join(t.TempDir(), "on-disk")
	podCIDR, pods, boots := "10.244.1.0/29", 5, 25
	if os.Getenv(soakEnv) != "" {
		podCIDR, pods, boots = "10.244.1.0/26", 20, 50
	}
	conf := map[string]any{"podCIDRs": []string{podCIDR, "fd00:10:244:1::/64"}, "stateDir": state}
	for boot := range boots {
		n := newNode(t, conf)
		for i := range pods {
			if a := n.call(t, n.newPod(t).request("ADD")); a.err != nil {
				t.Fatalf("boot %d, pod %d: %s", boot, i, a.stdout)
			}
		}
		if got := len(n.ports(t)); got != pods {
			t.Fatalf("boot %d: %d claims", boot, got)
		}
		if err := n.Delete(); err != nil {
			t.Fatal(err)
		}
	}
}

// A DEL for a container that has the same interface name as a live one's.
func TestDELTakesOneInterfaceOfAPod(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	p.add(t)
	second := p.request("ADD")
	second.ifName = "net1"
	if a := n.call(t, second); a.err != nil {
		t.Fatalf("second interface: %s", a.stdout)
	}
	second.verb = "DEL"
	if a := n.call(t, second); a.err != nil {
		t.Fatal(a.stdout)
	}
	if !has(t, p.Namespace, "eth0") || has(t, p.Namespace, "net1") {
		t.Error("the wrong interface is gone")
	}
}
