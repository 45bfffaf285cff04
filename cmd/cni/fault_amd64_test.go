package main_test

import (
	"fmt"
	"os"
	"testing"

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
