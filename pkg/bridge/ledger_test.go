package bridge_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// waitGone waits until a link that the kernel is destroying is gone.
func waitGone(t testing.TB, n *sandbox.Namespace, link string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); linkOf(t, n, link) != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", link)
		}
	}
}

func TestLedger(t *testing.T) {
	n := newNode(t)
	b := open(t, n, "cbr0")
	if entries, ports, err := b.Ledger(); entries != nil || ports != 0 || err != nil {
		t.Errorf("without a bridge: %v, %d, %v", entries, ports, err)
	}
	ensure(t, n, b, dual)
	p := port(sandbox.New(t, "pod"), "one")
	mustAttach(t, n, b, p, candidate(7))
	n.Run(t, "sh", "-ec", "ip link add foreign master cbr0 type veth peer name x; ip link property add dev foreign altname 10.244.1.9")
	// Named like one of ours, but the hardware address does not go with it.
	n.Run(t, "ip", "link", "add", "podaaaaaaaaaaaa", "address", "0e:00:00:00:00:01", "master", "cbr0", "type", "veth", "peer", "name", "y")
	entries, ports, err := b.Ledger()
	if err != nil || ports != 3 {
		t.Fatalf("%d ports: %v", ports, err)
	}
	want := "[{" + p.Owner.PortName() + " default/one [10.244.1.7 fd00:10:244:1::7]}]"
	if diff := cmp.Diff(want, fmt.Sprint(entries)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCollect(t *testing.T) {
	n := newNode(t)
	b, other := open(t, n, "cbr0"), open(t, n, "cbr1")
	ensure(t, n, b, dual)
	ensure(t, n, other, gateways("10.9.0.1/24"))
	keep, stale, stale2 := port(sandbox.New(t, "pod"), "keep"), port(sandbox.New(t, "pod"), "stale"), port(sandbox.New(t, "pod"), "stale2")
	foreign, elsewhere := port(sandbox.New(t, "pod"), "foreign"), port(sandbox.New(t, "pod"), "elsewhere")
	foreign.Network = "another network"
	for i, p := range []bridge.Port{keep, stale, stale2, foreign} {
		mustAttach(t, n, b, p, candidate(byte(2+i)))
	}
	mustAttach(t, n, other, elsewhere, candidate(9))
	n.Run(t, "ip", "link", "add", "handmade", "master", "cbr0", "type", "veth", "peer", "name", "x")

	freed, err := b.Collect("pods", []bridge.Owner{keep.Owner, {ContainerID: "never seen", IfName: "eth0"}})
	if err != nil || fmt.Sprint(freed) != "[10.244.1.3 fd00:10:244:1::3 10.244.1.4 fd00:10:244:1::4]" {
		t.Errorf("freed %v: %v", freed, err)
	}
	for link, want := range map[string]bool{
		keep.Owner.PortName(): true, stale.Owner.PortName(): false, stale2.Owner.PortName(): false,
		foreign.Owner.PortName(): true, elsewhere.Owner.PortName(): true, "handmade": true,
	} {
		if got := linkOf(t, n, link) != nil; got != want {
			t.Errorf("%s is there: %t, want %t", link, got, want)
		}
	}
	if freed, err := b.Collect("pods", []bridge.Owner{keep.Owner}); freed != nil || err != nil {
		t.Errorf("second time: freed %v: %v", freed, err)
	}
	if freed, err := open(t, n, "none").Collect("pods", nil); freed != nil || err != nil {
		t.Errorf("without a bridge: freed %v: %v", freed, err)
	}
}

// A Collect that was broken off between its two steps is finished by the next
// one.
func TestCollectFinishesAnother(t *testing.T) {
	n := newNode(t)
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(sandbox.New(t, "pod"), "stale")
	mustAttach(t, n, b, p, candidate(2))
	n.Run(t, "ip", "link", "set", "dev", p.Owner.PortName(), "group", "1987076978")
	if freed, err := b.Collect("another network", nil); len(freed) != 2 || err != nil {
		t.Errorf("freed %v: %v", freed, err)
	}
}

// R020: ports made before hairpin was wanted get it too.
func TestSetHairpin_R020(t *testing.T) {
	n := newNode(t)
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(sandbox.New(t, "pod"), "one")
	p.Hairpin = false
	mustAttach(t, n, b, p, candidate(2))
	n.Run(t, "ip", "link", "add", "handmade", "master", "cbr0", "type", "veth", "peer", "name", "x")
	for _, on := range []bool{true, false, true} {
		if err := b.SetHairpin(on); err != nil {
			t.Fatal(err)
		}
		if got := linkOf(t, n, p.Owner.PortName()).Info.SlaveData["hairpin"]; got != on {
			t.Errorf("hairpin is %v, want %t", got, on)
		}
		if got := linkOf(t, n, "handmade").Info.SlaveData["hairpin"]; got != false {
			t.Errorf("hairpin of a foreign port is %v", got)
		}
	}
}

func TestPortNames(t *testing.T) {
	seen := map[string]bridge.Owner{}
	for i := range 20000 {
		o := bridge.Owner{ContainerID: fmt.Sprintf("container-%d", i/2), IfName: fmt.Sprintf("eth%d", i%2)}
		name := o.PortName()
		if len(name) != 15 || !strings.HasPrefix(name, "pod") || strings.ToLower(name) != name {
			t.Fatalf("%v is named %q", o, name)
		}
		if seen[name] != (bridge.Owner{}) {
			t.Fatalf("%v and %v are both named %s", o, seen[name], name)
		}
		seen[name] = o
	}
	// Names are kept across versions of the program, or it could not delete what
	// an earlier one made.
	if got := (bridge.Owner{ContainerID: "4f5d0a", IfName: "eth0"}).PortName(); got != "podwivrh46c66f2" {
		t.Errorf("the name of an earlier version's port is %s now", got)
	}
	// The parts of an owner do not run into each other.
	if (bridge.Owner{ContainerID: "a", IfName: "bc"}).PortName() == (bridge.Owner{ContainerID: "ab", IfName: "c"}).PortName() {
		t.Error("two owners have one name")
	}
}

func TestAltname(t *testing.T) {
	for address, want := range map[string]string{
		"10.244.1.7": "10.244.1.7", "fd00:10:244:1::7": "fd00-10-244-1--7", "::1": "--1", "fd00:0:0:1:2:3:4:5": "fd00--1-2-3-4-5",
	} {
		if got := bridge.Altname(netip.MustParseAddr(address)); got != want {
			t.Errorf("Altname(%s) = %q, want %q", address, got, want)
		}
	}
}
