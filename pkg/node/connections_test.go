package node_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// newTrackingHost is a host that tracks connections, with a pod on cbr0 that has
// 10.244.1.7 and fd00:10:244:1::7.
func newTrackingHost(t *testing.T) (host, pod *sandbox.Namespace) {
	t.Helper()
	host, pod = sandbox.New(t, "host"), sandbox.New(t, "pod")
	host.Run(t, "nft", "add table inet tracked; add chain inet tracked in { type filter hook input priority 0; }; add rule inet tracked in ct state established accept")
	var candidate bridge.Candidate
	var gateways []netip.Prefix
	for _, a := range []string{"10.244.1.7/24", "fd00:10:244:1::7/64"} {
		p := netip.MustParsePrefix(a)
		gateway := p.Masked().Addr().Next()
		gateways = append(gateways, netip.PrefixFrom(gateway, p.Bits()))
		candidate.Addresses = append(candidate.Addresses, bridge.Address{Prefix: p, Gateway: gateway})
	}
	if err := host.Do(func() error {
		br, err := bridge.Open("cbr0")
		if err != nil {
			return err
		}
		defer br.Close()
		if _, err := br.Ensure(bridge.Settings{Gateways: gateways, MTU: 1500}); err != nil {
			return err
		}
		_, err = br.Attach(bridge.Port{Owner: bridge.Owner{ContainerID: "c", IfName: "eth0"}, NetNS: pod.Path(), MTU: 1500},
			func(error) (bridge.Candidate, error) { return candidate, nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return host, pod
}

// track puts a connection into the kernel's table, as a packet would.
func track(t *testing.T, host *sandbox.Namespace, from, to, translated string) {
	t.Helper()
	ip := func(s string) []byte { return netip.MustParseAddr(s).AsSlice() }
	family := netlink.InetFamily(unix.AF_INET)
	if netip.MustParseAddr(from).Is6() {
		family = unix.AF_INET6
	}
	flow := &netlink.ConntrackFlow{
		FamilyType: uint8(family),
		Forward:    netlink.IPTuple{SrcIP: ip(from), DstIP: ip(to), SrcPort: 1000, DstPort: 53, Protocol: unix.IPPROTO_UDP},
		Reverse:    netlink.IPTuple{SrcIP: ip(translated), DstIP: ip(from), SrcPort: 53, DstPort: 1000, Protocol: unix.IPPROTO_UDP},
		TimeOut:    100,
	}
	if err := host.Do(func() error { return netlink.ConntrackCreate(netlink.ConntrackTable, family, flow) }); err != nil {
		t.Fatal(err)
	}
}

// tracked lists where the connections in the kernel's table go to.
func tracked(t *testing.T, host *sandbox.Namespace) map[string]bool {
	t.Helper()
	to := map[string]bool{}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		var flows []*netlink.ConntrackFlow
		if err := host.Do(func() (err error) {
			flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, family)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			to[f.Reverse.SrcIP.String()] = true
		}
	}
	return to
}

// A released address has no connections left when its next owner comes, whether
// it was the one that asked or, behind a host port, the one that was asked.
func TestConnectionsOfReleasedAddressesAreForgotten(t *testing.T) {
	ranges := []netip.Prefix{prefix("10.244.1.0/24"), prefix("fd00:10:244:1::/64")}
	for name, tc := range map[string]struct {
		from, to, translated string
		released             []netip.Addr
		forgotten            bool
	}{
		"of a pod that lives":             {from: "10.244.1.7", to: "192.0.2.1"},
		"to a pod that lives":             {from: "192.0.2.1", to: "10.244.1.7"},
		"to a pod that lives, IPv6":       {from: "2001:db8::1", to: "fd00:10:244:1::7"},
		"of nobody's address":             {from: "10.244.1.9", to: "192.0.2.1", forgotten: true},
		"to nobody's address, translated": {from: "192.0.2.1", to: "172.31.0.11", translated: "10.244.1.9", forgotten: true},
		"of nobody's address, IPv6":       {from: "fd00:10:244:1::9", to: "2001:db8::1", forgotten: true},
		"of one released and taken again": {from: "10.244.1.7", to: "192.0.2.1", released: []netip.Addr{netip.MustParseAddr("10.244.1.7")}, forgotten: true},
		"to the gateway":                  {from: "192.0.2.1", to: "10.244.1.1"},
		"to a pod of another node":        {from: "192.0.2.1", to: "10.244.2.9"},
	} {
		t.Run(name, func(t *testing.T) {
			host, _ := newTrackingHost(t)
			if tc.translated == "" {
				tc.translated = tc.to
			}
			track(t, host, tc.from, tc.to, tc.translated)
			var n int
			if err := host.Do(func() (err error) {
				n, err = node.ForgetConnections(ranges, "cbr0", tc.released)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if left := tracked(t, host)[tc.translated]; left == tc.forgotten || (n == 1) != tc.forgotten {
				t.Errorf("still there: %v, deleted: %d, want it forgotten: %v", left, n, tc.forgotten)
			}
		})
	}
}

func TestForgettingWhereNothingIsTracked(t *testing.T) {
	host := sandbox.New(t, "host")
	if err := host.Do(func() error {
		_, err := node.ForgetConnections([]netip.Prefix{prefix("10.244.1.0/24")}, "cbr0", nil)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A release is told of with all addresses, here since the pod's namespace dies.
func TestWatchReleases(t *testing.T) {
	host, pod := newTrackingHost(t)
	ctx, stop := context.WithCancel(t.Context())
	calls := make(chan []netip.Addr, 10)
	ended := make(chan error)
	go func() {
		ended <- host.Do(func() error { return node.WatchReleases(ctx, func(free []netip.Addr) { calls <- free }) })
	}()
	if first := <-calls; first != nil {
		t.Errorf("at first: %v", first)
	}
	if err := pod.Delete(); err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]bool{netip.MustParseAddr("10.244.1.7"): true, netip.MustParseAddr("fd00:10:244:1::7"): true}
	for len(want) > 0 {
		select {
		case free := <-calls:
			for _, a := range free {
				if !want[a] {
					t.Errorf("%s was not released", a)
				}
				delete(want, a)
			}
		case <-time.After(time.Minute):
			t.Fatalf("never told of %v", want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
