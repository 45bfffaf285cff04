package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
)

// onePod is a configuration with room for a single pod, so that whatever keeps
// an address keeps the next pod out.
var onePod = map[string]any{"podCIDRs": []string{"10.244.1.0/30", "fd00:10:244:1::/64"}}

// wantClean checks that nothing of a pod is left: neither on the node nor in the
// pod's namespace nor in the state directory.
func (n *node) wantClean(t testing.TB, p *pod, when string) {
	t.Helper()
	if left := n.ports(t); len(left) > 0 {
		t.Errorf("%s: left on the node: %s", when, left)
	}
	if has(t, p.Namespace, "eth0") {
		t.Errorf("%s: eth0 is left in the pod", when)
	}
	entries, err := os.ReadDir(n.conf["stateDir"].(string))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(entries) > 1 {
		t.Errorf("%s: left in the state directory: %v", when, entries)
	}
}

// reset makes a node one on which no pod has ever been.
func (n *node) reset(t testing.TB) {
	t.Helper()
	if err := n.Do(func() error {
		l, err := netlink.LinkByName("cbr0")
		if err != nil {
			return nil // nothing came so far
		}
		return netlink.LinkDel(l)
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.conf["stateDir"].(string)); err != nil {
		t.Fatal(err)
	}
}

// R028: ADD killed or failing at every one of its operations, on a node without
// a bridge and a state directory. A DEL, or the end of the namespace, leaves
// nothing, and the only address can be had again.
func TestADDBrokenAtEveryStep_R028(t *testing.T) {
	n := newNode(t, onePod)
	whole := len(n.trace(t, n.newPod(t).request("ADD"), noFault, 0).operations)
	if whole < 20 {
		t.Fatalf("ADD has %d operations only: the tracer misses some", whole)
	}
	for _, f := range []fault{killBefore, killAfter, failOnce, failOn} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, onePod)
			p, other := n.newPod(t), n.newPod(t)
			for at := range whole {
				tr := n.trace(t, p.request("ADD"), f, at)
				if len(tr.operations) <= at {
					t.Errorf("operation %d never came: %s", at, tr)
					continue
				}
				when := fmt.Sprintf("ADD %s %s, operation %d", f, tr.operations[at], at)
				n.endOfADD(t, tr, f, p, when)
				n.wantClean(t, p, when)
				other.add(t)
				other.del(t)
				n.reset(t)
			}
		})
	}
}

// endOfADD does what comes after an ADD that was broken off, and checks what an
// ADD that ended by itself left.
func (n *node) endOfADD(t *testing.T, tr trace, f fault, p *pod, when string) {
	t.Helper()
	switch f {
	case killBefore:
		if !tr.killed {
			t.Errorf("%s: it lived on", when)
		}
		p.del(t)
	case killAfter:
		if !tr.killed {
			t.Errorf("%s: it lived on", when)
		}
		old := *p
		if err := p.Delete(); err != nil {
			t.Fatal(err)
		}
		n.waitClean(t, when)
		*p = *n.newPod(t)
		old.del(t)
	case failOnce:
		// What only costs order, such as the hint, need not fail the pod; and a
		// result that could not be printed leaves a pod for the runtime to DEL.
		printed := tr.operations[len(tr.operations)-1] != "write"
		if tr.err != nil && printed && len(n.ports(t)) > 0 {
			t.Errorf("%s: %v %s, and left %s", when, tr.err, tr.stdout, n.ports(t))
		}
		p.del(t)
	case failOn:
		p.del(t)
	}
}

// R028: a DEL that is broken off is finished by the next one. As long as a DEL
// has not succeeded the address stays claimed.
func TestDELBrokenAtEveryStep_R028(t *testing.T) {
	n := newNode(t, onePod)
	p := n.newPod(t)
	p.add(t)
	whole := len(n.trace(t, p.request("DEL"), noFault, 0).operations)
	if whole < 8 {
		t.Fatalf("DEL has %d operations only: the tracer misses some", whole)
	}
	for _, f := range []fault{killBefore, killAfter, failOnce, failOn} {
		for at := range whole {
			p.add(t)
			tr := n.trace(t, p.request("DEL"), f, at)
			if len(tr.operations) <= at {
				t.Errorf("operation %d never came: %s", at, tr)
				continue
			}
			when := fmt.Sprintf("DEL %s %s, operation %d", f, tr.operations[at], at)
			claimed := len(n.ports(t)) > 0
			switch {
			case tr.killed, f == failOn && tr.operations[at] == "recvfrom":
				// Either way is right: it could not know.
			case tr.err == nil && claimed:
				t.Errorf("%s: it reports success, and left %s", when, n.ports(t))
			case tr.err != nil && !claimed:
				t.Errorf("%s: it fails, and the address is free: %s", when, tr.stdout)
			}
			p.del(t)
			n.wantClean(t, p, when)
		}
	}
}

// R030: a CHECK that cannot find something out says "try later" (11) and never
// blames the pod, which gets sound pods torn down.
func TestCHECKBrokenAtEveryStep_R030(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	r := p.request("CHECK")
	r.conf = map[string]any{"prevResult": previous(t, p.add(t))}
	whole := len(n.trace(t, r, noFault, 0).operations)
	for at := range whole {
		tr := n.trace(t, r, failOnce, at)
		operation := tr.operations[len(tr.operations)-1]
		if tr.err == nil {
			continue // a log that cannot be written is not the pod's fault either
		}
		var e types.Error
		if tr.stdout == "" && operation == "write" {
			continue // the answer itself could not be written
		}
		if err := json.Unmarshal([]byte(tr.stdout), &e); err != nil || e.Code != types.ErrTryAgainLater {
			t.Errorf("CHECK failed %s, operation %d: %s", operation, at, tr.stdout)
		}
	}
}

// GC goes on past what it cannot delete and says so; the next one finishes.
func TestGCBrokenAtEveryStep(t *testing.T) {
	n := newNode(t, nil)
	keep := n.newPod(t)
	keep.add(t)
	stale := []*pod{n.newPod(t), n.newPod(t), n.newPod(t)}
	gc := request{verb: "GC", conf: map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": keep.id, "ifname": "eth0"}}}}
	whole := len(n.trace(t, gc, noFault, 0).operations) + 2*(len(stale)+1)
	wentOn := false
	for _, f := range []fault{killBefore, killAfter, failOnce} {
		for at := range whole {
			for _, p := range stale {
				p.add(t)
			}
			tr := n.trace(t, gc, f, at)
			left := len(n.ports(t))
			if f == failOnce && tr.err == nil && left != 1 {
				t.Errorf("GC %s, operation %d: success, and %d pods are left: %s", f, at, left, tr)
			}
			wentOn = wentOn || f == failOnce && tr.err != nil && left == 2
			if a := n.call(t, gc); a.err != nil {
				t.Errorf("the next GC: %s", a.stdout)
			}
			if left := len(n.ports(t)); left != 1 || !has(t, n.Namespace, owner(keep).PortName()) {
				t.Errorf("GC %s, operation %d: after the next one %v are left", f, at, n.ports(t))
			}
		}
	}
	if !wentOn {
		t.Error("no GC went on past the one port that it could not delete")
	}
}

// A process that hangs, wherever it does, keeps no other one from working.
func TestHungProcessBlocksNobody(t *testing.T) {
	n := newNode(t, nil)
	p, q := n.newPod(t), n.newPod(t)
	q.add(t)
	q.del(t)
	for _, verb := range []string{"ADD", "DEL"} {
		whole := len(n.trace(t, p.request(verb), noFault, 0).operations)
		for at := range whole {
			p.del(t)
			if verb == "DEL" {
				p.add(t)
			}
			done := false
			tr := n.traceDuring(t, p.request(verb), hang, at, func() {
				q.add(t)
				q.del(t)
				done = true
			})
			if tr.err != nil || !done {
				t.Errorf("%s hung at operation %d: %v %s", verb, at, tr.err, tr.stdout)
			}
		}
	}
}
