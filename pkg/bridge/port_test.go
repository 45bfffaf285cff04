package bridge_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// The caller's thread is in the node's namespace again when Attach returns, also
// when it failed inside the pod's.
func TestAttachComesBackToTheNode(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	sound := port(pod, "one")
	unroutable := port(sandbox.New(t, "pod"), "two")
	unroutable.Routes = []bridge.Route{{Dst: netip.MustParsePrefix("192.0.2.0/24"), GW: netip.MustParseAddr("198.51.100.1")}}
	for i, p := range []bridge.Port{sound, unroutable} {
		var was, is string
		var err error
		if doErr := n.Do(func() error {
			var before, after error
			was, before = os.Readlink("/proc/thread-self/ns/net")
			_, err = b.Attach(p, inTurn(candidate(byte(7+i))))
			is, after = os.Readlink("/proc/thread-self/ns/net")
			return errors.Join(before, after)
		}); doErr != nil {
			t.Fatal(doErr)
		}
		if is != was || (err == nil) != (i == 0) {
			t.Errorf("%s: the thread is in %s, and was in %s: %v", p.Owner.ContainerID, is, was, err)
		}
	}
}

func TestAttachMakesAPort(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(pod, "one")
	p.Routes = []bridge.Route{{Dst: netip.MustParsePrefix("192.0.2.0/24")}, {Dst: netip.MustParsePrefix("2001:db8::/32"), GW: netip.MustParseAddr("fd00:10:244:1::9")}}
	a := mustAttach(t, n, b, p, candidate(7))

	host := linkOf(t, n, p.Owner.PortName())
	if host == nil {
		t.Fatal("no host veth")
	}
	if diff := cmp.Diff([]string{"10.244.1.7", "fd00-10-244-1--7"}, host.Altnames); diff != "" {
		t.Errorf("claims, -want +got:\n%s", diff)
	}
	if host.Master != "cbr0" || host.Info.SlaveData["hairpin"] != true || host.MTU != 1500 || host.Alias != "default/one" || host.AddrGen != "none" {
		t.Errorf("host veth is %+v", host)
	}
	if got := addressesOf(t, n, host.Name); got != nil {
		t.Errorf("host veth has the addresses %v", got)
	}
	eth0 := linkOf(t, pod, "eth0")
	if eth0 == nil || eth0.Address != "0a:58:0a:f4:01:07" || eth0.MTU != 1500 || !slices.Contains(eth0.Flags, "LOWER_UP") {
		t.Fatalf("eth0 is %+v", eth0)
	}
	// R021: no address waits for duplicate-address detection.
	want := []string{"10.244.1.7/24", "fd00:10:244:1::7/64", "fe80::858:aff:fef4:107/64"}
	if diff := cmp.Diff(want, addressesOf(t, pod, "eth0")); diff != "" {
		t.Errorf("addresses of eth0, -want +got:\n%s", diff)
	}
	routes := pod.Run(t, "sh", "-c", "ip route; ip -6 route")
	for _, r := range []string{"default via 10.244.1.1 dev eth0", "default via fd00:10:244:1::1 dev eth0", "192.0.2.0/24 via 10.244.1.1 dev eth0", "2001:db8::/32 via fd00:10:244:1::9 dev eth0"} {
		if !strings.Contains(routes, r) {
			t.Errorf("no route %q in\n%s", r, routes)
		}
	}
	if a.BridgeMAC.String() != "0a:58:0a:f4:01:01" || a.HostMAC.String() != host.Address || a.PodMAC.String() != eth0.Address || len(a.Routes) != 4 {
		t.Errorf("Attach returned %+v", a)
	}
	// R016: both ends got their hardware address at creation.
	if got := assignType(t, n, host.Name) + assignType(t, pod, "eth0"); got != "33" {
		t.Errorf("addr_assign_type of both ends: %s, want 3 and 3", got)
	}
	// Whoever asks for the address gets its owner.
	if l := linkOf(t, n, "10.244.1.7"); l == nil || l.Name != host.Name {
		t.Errorf("ip link show 10.244.1.7 shows %v", l)
	}
}

func TestAttachTakesTheFirstFreeCandidate(t *testing.T) {
	n := newNode(t)
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	mustAttach(t, n, b, port(sandbox.New(t, "pod"), "one"), candidate(2))
	// 10.244.1.3 is free, but its IPv6 partner is somebody else's.
	n.Run(t, "ip", "link", "property", "add", "dev", "uplink", "altname", "fd00-10-244-1--3")

	pod := sandbox.New(t, "pod")
	p := port(pod, "two")
	var refused []string
	next := inTurn(candidate(2), candidate(3), candidate(4))
	a, err := attach(n, b, p, func(err error) (bridge.Candidate, error) {
		if err != nil {
			refused = append(refused, err.Error())
		}
		return next(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"address taken: 10.244.1.2", "address taken: fd00:10:244:1::3"}, refused); diff != "" {
		t.Errorf("refusals, -want +got:\n%s", diff)
	}
	// Both addresses of a candidate or neither.
	if diff := cmp.Diff([]string{"10.244.1.4", "fd00-10-244-1--4"}, linkOf(t, n, p.Owner.PortName()).Altnames); diff != "" {
		t.Errorf("claims, -want +got:\n%s", diff)
	}
	if got := linkOf(t, pod, "eth0").Address; got != "0a:58:0a:f4:01:04" || a.PodMAC.String() != got {
		t.Errorf("eth0 has the hardware address %s of another candidate", got)
	}
	if got := assignType(t, pod, "eth0"); got != "3" {
		t.Errorf("addr_assign_type of eth0 is %s, want 3", got)
	}
}

func TestAttachWithOneFamily(t *testing.T) {
	for name, tt := range map[string]struct {
		c    func(byte) bridge.Candidate
		mac  string
		want []string
	}{
		"IPv4": {func(i byte) bridge.Candidate { c := candidate(i); c.Addresses = c.Addresses[:1]; return c }, "0a:58:0a:f4:01:07", []string{"10.244.1.7/24"}},
		"IPv6": {
			func(i byte) bridge.Candidate { c := candidate(i); c.Addresses = c.Addresses[1:]; return c }, "0a:58:00:00:00:07",
			[]string{"fd00:10:244:1::7/64", "fe80::858:ff:fe00:7/64"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, pod := newNode(t), sandbox.New(t, "pod")
			b := open(t, n, "cbr0")
			ensure(t, n, b, bridge.Settings{Gateways: dual.Gateways[map[string]int{"IPv4": 0, "IPv6": 1}[name]:][:1]})
			mustAttach(t, n, b, port(pod, "one"), tt.c(7))
			if got := linkOf(t, pod, "eth0").Address; got != tt.mac {
				t.Errorf("hardware address %s, want %s", got, tt.mac)
			}
			if diff := cmp.Diff(tt.want, addressesOf(t, pod, "eth0")); diff != "" {
				t.Errorf("addresses, -want +got:\n%s", diff)
			}
		})
	}
}

func TestAttachWithAWantedMAC(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(pod, "one")
	p.MAC, _ = net.ParseMAC("02:00:00:00:00:99")
	p.Hairpin = false
	mustAttach(t, n, b, p, candidate(2))
	if got := linkOf(t, pod, "eth0").Address; got != "02:00:00:00:00:99" {
		t.Errorf("hardware address %s", got)
	}
	if got := linkOf(t, n, "10.244.1.2").Info.SlaveData["hairpin"]; got != false {
		t.Errorf("hairpin is %v, want it off", got)
	}
	if got := addressesOf(t, pod, "eth0"); !slices.Contains(got, "fe80::ff:fe00:99/64") {
		t.Errorf("addresses %v lack the link-local one of that hardware address", got)
	}
}

// Container runtimes switch IPv6 off in new namespaces.
func TestAttachSwitchesIPv6On(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	pod.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
	mustAttach(t, n, b, port(pod, "one"), candidate(2))
	if got := addressesOf(t, pod, "eth0"); !slices.Contains(got, "fd00:10:244:1::2/64") {
		t.Errorf("addresses: %v", got)
	}
	if got := readFile(t, pod, "/proc/sys/net/ipv6/conf/all/disable_ipv6"); got != "1" {
		t.Errorf("IPv6 was switched on for other interfaces too")
	}
}

// podLinks lists a node's links that look like ports.
func podLinks(t testing.TB, n *sandbox.Namespace) []string {
	t.Helper()
	var out []string
	for _, line := range strings.Split(n.Run(t, "ip", "-o", "link"), "\n") {
		if f := strings.Fields(line); strings.HasPrefix(f[1], "pod") {
			out = append(out, strings.TrimSuffix(f[1], ":"))
		}
	}
	return out
}

func TestAttachThatFailsLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	errBoom := errors.New("boom")
	tests := map[string]struct {
		spoil func(*sandbox.Namespace, *bridge.Port) func(error) (bridge.Candidate, error)
		want  error
		say   string
	}{
		"no candidate": {func(*sandbox.Namespace, *bridge.Port) func(error) (bridge.Candidate, error) {
			return func(error) (bridge.Candidate, error) { return bridge.Candidate{}, errBoom }
		}, errBoom, ""},
		"no second candidate": {func(n *sandbox.Namespace, _ *bridge.Port) func(error) (bridge.Candidate, error) {
			n.Run(t, "ip", "link", "property", "add", "dev", "uplink", "altname", "10.244.1.9")
			return inTurn(candidate(9))
		}, errNoMore, ""},
		// R036: the message names the interface in the way.
		"interface in the pod": {func(_ *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			pod := sandbox.New(t, "pod")
			pod.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x")
			p.NetNS = pod.Path()
			return inTurn(candidate(9))
		}, bridge.ErrInterfaceExists, "eth0"},
		"no namespace": {func(_ *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			p.NetNS = "/run/netns/none"
			return inTurn(candidate(9))
		}, bridge.ErrNamespace, "/run/netns/none"},
		"a plain file": {func(_ *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			p.NetNS = file
			return inTurn(candidate(9))
		}, bridge.ErrNamespace, file},
		"another kind of namespace": {func(_ *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			p.NetNS = "/proc/self/ns/mnt"
			return inTurn(candidate(9))
		}, bridge.ErrNamespace, "/proc/self/ns/mnt"},
		"the node's own namespace": {func(n *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			p.NetNS = n.Path()
			return inTurn(candidate(9))
		}, bridge.ErrNamespace, "own"},
		"a route the pod cannot use": {func(_ *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			p.Routes = []bridge.Route{{Dst: netip.MustParsePrefix("192.0.2.0/24"), GW: netip.MustParseAddr("203.0.113.9")}}
			return inTurn(candidate(9))
		}, nil, "192.0.2.0/24"},
		"an MTU no link can have": {func(_ *sandbox.Namespace, p *bridge.Port) func(error) (bridge.Candidate, error) {
			p.MTU = 10
			return inTurn(candidate(9))
		}, nil, "invalid argument"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			b := open(t, n, "cbr0")
			ensure(t, n, b, dual)
			p := port(sandbox.New(t, "pod"), "one")
			next := tt.spoil(n, &p)
			_, err := attach(n, b, p, next)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("got %v, want %v saying %q", err, tt.want, tt.say)
			}
			if left := podLinks(t, n); left != nil {
				t.Errorf("left on the node: %v", left)
			}
			mustAttach(t, n, b, port(sandbox.New(t, "pod"), "two"), candidate(2), candidate(3))
		})
	}
}

// R004: the second call gets an error that says what the first one got, and
// takes nothing.
func TestAttachTwice_R004(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(pod, "one")
	mustAttach(t, n, b, p, candidate(2))
	_, err := attach(n, b, p, inTurn(candidate(3)))
	if !errors.Is(err, bridge.ErrAttached) || !strings.Contains(err.Error(), "10.244.1.2") {
		t.Errorf("second Attach: %v", err)
	}
	p.NetNS = sandbox.New(t, "pod").Path()
	if _, err := attach(n, b, p, inTurn(candidate(3))); !errors.Is(err, bridge.ErrAttached) {
		t.Errorf("second Attach in another namespace: %v", err)
	}
	if got := podLinks(t, n); len(got) != 1 || linkOf(t, n, "10.244.1.2") == nil || linkOf(t, n, "10.244.1.3") != nil {
		t.Errorf("after that: %v", got)
	}
	freed, err := b.Detach(p.Owner)
	if err != nil || fmt.Sprint(freed) != "[10.244.1.2 fd00:10:244:1::2]" {
		t.Errorf("Detach freed %v: %v", freed, err)
	}
	if freed, err := b.Detach(p.Owner); freed != nil || err != nil {
		t.Errorf("second Detach freed %v: %v", freed, err)
	}
	if got := podLinks(t, n); got != nil {
		t.Errorf("left: %v", got)
	}
}

func TestBridgeWithoutAFreePort(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, gateways("10.244.0.1/16"))
	var batch strings.Builder
	for i := range bridge.MaxPorts {
		fmt.Fprintf(&batch, "link add v%d master cbr0 type veth peer name w%d\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Run(t, "ip", "-batch", file)
	_, err := attach(n, b, port(pod, "one"), inTurn(candidate(2)))
	if !errors.Is(err, bridge.ErrFull) || !strings.Contains(err.Error(), "cbr0 has 1023") {
		t.Errorf("Attach: %v", err)
	}
	if linkOf(t, pod, "eth0") != nil || linkOf(t, n, "10.244.1.2") != nil {
		t.Error("something of the port is left")
	}
	entries, ports, err := b.Ledger()
	if err != nil || len(entries) != 0 || ports != bridge.MaxPorts {
		t.Errorf("Ledger() = %v, %d, %v; none of these ports are ours", entries, ports, err)
	}
}

func TestNamespaceDeathFreesTheAddress(t *testing.T) {
	n, pod := newNode(t), sandbox.New(t, "pod")
	b := open(t, n, "cbr0")
	ensure(t, n, b, dual)
	p := port(pod, "one")
	mustAttach(t, n, b, p, candidate(2))
	if err := pod.Delete(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, n, p.Owner.PortName())
	mustAttach(t, n, b, port(sandbox.New(t, "pod"), "two"), candidate(2))
}
