package main_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

func addresses(t testing.TB, r *types100.Result) []netip.Addr {
	t.Helper()
	var out []netip.Addr
	for _, ip := range r.IPs {
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			t.Fatalf("result has the address %v", ip.Address)
		}
		out = append(out, a.Unmap())
	}
	return out
}

// previous is a result as a runtime hands it back.
func previous(t testing.TB, a answer) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.stdout), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPodsReachEachOtherAndTheNode(t *testing.T) {
	n := newNode(t, nil)
	p, q := n.newPod(t), n.newPod(t)
	pa, qa := addresses(t, p.add(t).result), addresses(t, q.add(t).result)
	node := []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:10:244:1::1")}
	for i := range pa {
		if got := peerSeen(t, p.Namespace, q.Namespace, qa[i]); got != pa[i] {
			t.Errorf("%s is seen as %s by its neighbour", pa[i], got)
		}
		if got := peerSeen(t, n.Namespace, p.Namespace, pa[i]); got != node[i] {
			t.Errorf("the node is seen as %s by its pod, want %s", got, node[i])
		}
		if got := peerSeen(t, p.Namespace, n.Namespace, node[i]); got != pa[i] {
			t.Errorf("%s is seen as %s by its node", pa[i], got)
		}
	}
}

// R054: every verb works on a node that is cut off from everything, an API
// server too, and that has nothing but its configuration: no token, no
// kubeconfig.
func TestAllVerbsOnANodeCutOff_R054(t *testing.T) {
	n := newNode(t, nil)
	n.Run(t, "ip", "link", "delete", "uplink")
	p, q := n.newPod(t), n.newPod(t)
	added := p.add(t)
	q.add(t)

	r := p.request("CHECK")
	r.conf = map[string]any{"prevResult": previous(t, added)}
	if a := n.call(t, r); a.err != nil {
		t.Errorf("CHECK of a sound pod: %v", a.cniErr)
	}
	wantSound(t, n.call(t, request{verb: "STATUS"}))
	valid := map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": p.id, "ifname": "eth0"}}}
	if a := n.call(t, request{verb: "GC", conf: valid}); a.err != nil {
		t.Errorf("GC: %v", a.cniErr)
	}
	n.Run(t, "ip", "link", "show", "10.244.1.2")
	if out, err := n.Try("ip", "link", "show", "10.244.1.3"); err == nil {
		t.Errorf("GC left the pod that is not listed: %s", out)
	}
	p.del(t)
	p.del(t)
	if out, err := n.Try("ip", "link", "show", "10.244.1.2"); err == nil {
		t.Errorf("DEL left %s", out)
	}
	if a := n.call(t, request{verb: "VERSION"}); a.err != nil || !strings.Contains(a.stdout, `"0.3.1","0.4.0","1.0.0","1.1.0"`) {
		t.Errorf("VERSION: %v %s", a.err, a.stdout)
	}
}
