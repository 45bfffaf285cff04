package runtime_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
)

// run creates a pod's sandbox and returns its status when its process listens.
func run(t *testing.T, n *cri.Node, p cri.Pod) *cri.Sandbox {
	t.Helper()
	id, err := n.Run(t.Context(), p)
	if err != nil {
		t.Fatalf("run pod %s: %v", p.Name, err)
	}
	s := status(t, n, id)
	listening(t, s)
	return s
}

func status(t *testing.T, n *cri.Node, id string) *cri.Sandbox {
	t.Helper()
	s, err := n.Status(t.Context(), id)
	if err != nil {
		t.Fatalf("status of sandbox %s: %v", id, err)
	}
	return s
}

func remove(t *testing.T, n *cri.Node, id string) {
	t.Helper()
	if err := n.Remove(t.Context(), id); err != nil {
		t.Fatalf("remove sandbox %s: %v", id, err)
	}
}

// An enter runs a function on a thread inside some network namespace.
type enter func(func() error) error

// inPod enters a sandbox's network namespace.
func inPod(s *cri.Sandbox) enter {
	return func(f func() error) error {
		return ns.WithNetNSPath(s.Netns, func(ns.NetNS) error { return f() })
	}
}

// caller is the address that the process behind an address and port sees a
// caller from that namespace come from.
func caller(from enter, address string) (netip.Addr, error) {
	var seen netip.AddrPort
	err := from(func() error {
		conn, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return fmt.Errorf("read from %s: %w", address, err)
		}
		seen, err = netip.ParseAddrPort(strings.TrimSpace(line))
		return err
	})
	return seen.Addr().Unmap(), err
}

// listening waits until a sandbox's process does what it is there for: it is
// ready for the runtime as soon as it has been started.
func listening(t *testing.T, s *cri.Sandbox) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := caller(inPod(s), "localhost:8080")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the process of pod %s does not listen: %v", s.Pod.Name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func checkCaller(t *testing.T, from enter, address string, want netip.Addr) {
	t.Helper()
	got, err := caller(from, address)
	if err != nil {
		t.Errorf("call %s: %v", address, err)
	} else if got != want {
		t.Errorf("the pod behind %s sees %s, want %s", address, got, want)
	}
}

func onPort(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// altname is how the plugin spells an address as another name of a link.
func altname(a netip.Addr) string { return strings.ReplaceAll(a.String(), ":", "-") }

// alias is the text on the host veth that carries an address.
func alias(t *testing.T, n *cri.Node, a netip.Addr) string {
	t.Helper()
	out := n.Network.Run(t, "ip", "-o", "link", "show", altname(a))
	_, text, _ := strings.Cut(out, `alias `)
	return strings.TrimSpace(strings.ReplaceAll(text, `\`, " "))
}

func TestPodSandbox(t *testing.T) {
	n := startNode(t, alone)
	neighbor := run(t, n, pod("neighbor"))
	before := settled(t, n)
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0"} {
		t.Run("configuration of version "+version, func(t *testing.T) {
			c := alone
			c.version = version
			n.Configure(t, c.bytes(n))

			s := run(t, n, pod("web"))
			if !s.Ready {
				t.Errorf("the sandbox is not ready")
			}
			if len(s.Addresses) != 2 {
				t.Fatalf("addresses %v, want one of each family", s.Addresses)
			}
			for i, a := range s.Addresses {
				if p := netip.MustParsePrefix(dualStack[i]); !p.Contains(a) {
					t.Errorf("address %s is not in %s", a, p)
				}
				checkCaller(t, n.Network.Do, onPort(a, 8080), netip.MustParsePrefix(dualStack[i]).Addr().Next())
				checkCaller(t, inPod(neighbor), onPort(a, 8080), neighbor.Addresses[i])
			}
			if got, want := alias(t, n, s.Addresses[0]), alias(t, n, s.Addresses[1]); got != want {
				t.Errorf("the two addresses are of different links: %s and %s", got, want)
			}

			if err := n.Stop(t.Context(), s.ID); err != nil {
				t.Fatalf("stop: %v", err)
			}
			if got := status(t, n, s.ID); got.Ready {
				t.Errorf("the sandbox is ready after having been stopped")
			}
			for _, a := range s.Addresses {
				if out, err := n.Network.Try("ip", "link", "show", altname(a)); err == nil {
					t.Errorf("address %s is still claimed after the sandbox has been stopped: %s", a, out)
				}
			}
			remove(t, n, s.ID) // stops it a second time, as the kubelet does
			checkInventory(t, n, before)
		})
	}
}

func TestAliasNamesThePod(t *testing.T) {
	n := startNode(t, alone)
	before := settled(t, n)
	const uid = "2f1c9d5e-7a4b-4f0e-9a51-0d5c1c0b7f11"
	for _, tc := range []struct {
		situation       string
		namespace, name string
		starts          string
	}{
		{"short names", "shop", "web-0", "shop/web-0 "},
		{
			"names that fill a label", strings.Repeat("n", 63), strings.Repeat("p", 63),
			strings.Repeat("n", 63) + "/" + strings.Repeat("p", 63),
		},
		// The kernel takes 255 bytes, which must do for the rest too.
		{"the longest name of a pod", "shop", strings.Repeat("p", 253), "shop/" + strings.Repeat("p", 100)},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			s := run(t, n, cri.Pod{Namespace: tc.namespace, Name: tc.name, UID: uid})
			got := alias(t, n, s.Addresses[0])
			if !strings.HasPrefix(got, tc.starts) {
				t.Errorf("alias %q does not start with %q", got, tc.starts)
			}
			for _, want := range []string{uid, s.ID, "eth0"} {
				if !strings.Contains(got, want) {
					t.Errorf("alias %q does not contain %q", got, want)
				}
			}
			remove(t, n, s.ID)
			checkInventory(t, n, before)
		})
	}
}
