package main_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// peerSeen connects from one namespace to an address in another over TCP and
// returns the peer's address as the server there sees it.
func peerSeen(t testing.TB, from, to *sandbox.Namespace, address netip.Addr) netip.Addr {
	t.Helper()
	return peerSeenAt(t, from, to, address, address)
}

// peerSeenAt is peerSeen for a server that is reached by another address.
func peerSeenAt(t testing.TB, from, to *sandbox.Namespace, address, by netip.Addr) netip.Addr {
	t.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	}); err != nil {
		t.Fatalf("listen on %s in %s: %v", address, to.Name, err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, c.RemoteAddr().String())
			c.Close()
		}
	}()
	var seen []byte
	err := from.Do(func() error {
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(by, port).String(), 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		seen, err = io.ReadAll(c)
		return err
	})
	if err != nil {
		t.Fatalf("%s cannot reach %s in %s: %v", from.Name, by, to.Name, err)
	}
	return netip.MustParseAddrPort(string(seen)).Addr()
}

// outside puts a namespace at the other end of a node's uplink that routes the
// node's podCIDRs to it, as a VPC does.
func (n *node) outside(t testing.TB) *sandbox.Namespace {
	t.Helper()
	vpc := sandbox.New(t, "vpc")
	n.Run(t, "sh", "-ec", `
		ip link set vpc netns `+vpc.Name+`
		ip -6 addr add fd00:192::11/64 dev uplink nodad
		ip -6 route add default via fd00:192::1`)
	vpc.Run(t, "sh", "-ec", `
		ip link set vpc up
		ip addr add 192.168.0.1/24 dev vpc
		ip -6 addr add fd00:192::1/64 dev vpc nodad
		ip route add 10.244.1.0/24 via 192.168.0.11
		ip -6 route add fd00:10:244:1::/64 via fd00:192::11`)
	return vpc
}

// Packets that the node forwards reach a pod it has not talked to before, and
// keep their addresses. (In IPv6 that needs a link-local address on the bridge.)
func TestForwardedTraffic(t *testing.T) {
	n := newNode(t, nil)
	vpc := n.outside(t)
	outside := []netip.Addr{netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:192::1")}
	for range 2 {
		in, out := n.newPod(t), n.newPod(t)
		for i, a := range addresses(t, in.add(t).result) {
			if got := peerSeen(t, vpc, in.Namespace, a); got != outside[i] {
				t.Errorf("%s is seen as %s", outside[i], got)
			}
		}
		for i, a := range addresses(t, out.add(t).result) {
			if got := peerSeen(t, out.Namespace, vpc, outside[i]); got != a {
				t.Errorf("%s is seen as %s", a, got)
			}
		}
	}
}

// An address that is used again is reached at once: no neighbour entry is out of
// date, since hardware addresses go with addresses.
func TestAddressUsedAgain(t *testing.T) {
	n := newNode(t, onePodBeside)
	client := n.newPod(t)
	client.add(t)
	for range 3 {
		p := n.newPod(t)
		for _, a := range addresses(t, p.add(t).result) {
			peerSeen(t, client.Namespace, p.Namespace, a)
			peerSeen(t, n.Namespace, p.Namespace, a)
		}
		p.del(t)
	}
}

// onePodBeside is a configuration with room for two pods.
var onePodBeside = map[string]any{"podCIDRs": []string{"10.244.1.0/29", "fd00:10:244:1::/64"}, "exclude": []string{"10.244.1.4/30"}}

// Pods of different ranges on one node reach each other by their gateways.
func TestSeveralRangesOnOneNode(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/30", "10.9.0.0/30", "fd00:1::/64"}})
	p, q := n.newPod(t), n.newPod(t)
	pa, qa := addresses(t, p.add(t).result), addresses(t, q.add(t).result)
	for i := range pa {
		if got := peerSeen(t, p.Namespace, q.Namespace, qa[i]); got != pa[i] {
			t.Errorf("%s is seen as %s", pa[i], got)
		}
	}
}

// R020: with the default configuration a pod reaches itself through a service:
// its packets are sent back out of the port they came from.
func TestPodReachesItselfThroughAService_R020(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/24"}})
	n.outside(t)
	p := n.newPod(t)
	a := addresses(t, p.add(t).result)[0]
	service := netip.MustParseAddr("10.96.0.10")
	n.Run(t, "nft", `
		table ip services {
			chain prerouting { type nat hook prerouting priority dstnat; ip daddr `+service.String()+` dnat to `+a.String()+`; }
			chain postrouting { type nat hook postrouting priority srcnat; ip saddr `+a.String()+` ip daddr `+a.String()+` masquerade; }
		}`)
	if got := n.Run(t, "cat", "/proc/sys/net/ipv4/ip_forward"); got != "1" {
		t.Fatalf("forwarding is %s", got)
	}
	peerSeenAt(t, p.Namespace, p.Namespace, a, service)
}
