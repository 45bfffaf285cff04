package ipam_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/ipam"
)

// prefixes reads a space-separated list.
func prefixes(t testing.TB, text string) []netip.Prefix {
	t.Helper()
	var out []netip.Prefix
	for _, s := range strings.Fields(text) {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func pool(t testing.TB, ranges, exclude string) *ipam.Pool {
	t.Helper()
	p, err := ipam.New(prefixes(t, ranges), prefixes(t, exclude))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// everything lists the addresses of every position that can be given to a pod,
// as "ADDRESS[+ADDRESS]".
func everything(p *ipam.Pool) []string {
	var out []string
	for i := range p.Size() {
		var pair []string
		for _, a := range p.At(i) {
			pair = append(pair, a.Prefix.String())
		}
		if pair != nil {
			out = append(out, strings.Join(pair, "+"))
		}
	}
	return out
}

func TestSmallPoolsWhole(t *testing.T) {
	tests := map[string]struct {
		ranges, exclude string
		want            []string
	}{
		"/30 has one pod": {"10.244.1.0/30", "", []string{"10.244.1.2/30"}},
		"/29":             {"10.244.1.8/29", "", []string{"10.244.1.10/29", "10.244.1.11/29", "10.244.1.12/29", "10.244.1.13/29", "10.244.1.14/29"}},
		"/29 less a range": {
			"10.244.1.8/29", "10.244.1.12/30 10.244.1.10/32",
			[]string{"10.244.1.11/29"},
		},
		"two ranges": {"10.244.1.0/30 10.244.7.4/30", "", []string{"10.244.1.2/30", "10.244.7.6/30"}},
		"dual stack, alike in the last digits": {
			"10.244.1.0/29 fd00::/120", "",
			[]string{"10.244.1.2/29+fd00::2/120", "10.244.1.3/29+fd00::3/120", "10.244.1.4/29+fd00::4/120", "10.244.1.5/29+fd00::5/120", "10.244.1.6/29+fd00::6/120"},
		},
		"dual stack in the other order": {"fd00::/64 10.244.1.0/30", "", []string{"10.244.1.2/30+fd00::2/64"}},
		"excluded in one family goes in both": {
			"10.244.1.0/29 fd00::/64", "fd00::4/128 10.244.1.2/31",
			[]string{"10.244.1.5/29+fd00::5/64", "10.244.1.6/29+fd00::6/64"},
		},
		"two ranges beside one": {
			"10.244.1.0/30 10.244.7.0/29 fd00::/64", "",
			[]string{"10.244.1.2/30+fd00::2/64", "10.244.7.2/29+fd00::6/64", "10.244.7.3/29+fd00::7/64", "10.244.7.4/29+fd00::8/64", "10.244.7.5/29+fd00::9/64", "10.244.7.6/29+fd00::a/64"},
		},
		"excluded addresses elsewhere": {"10.244.1.0/30", "10.244.9.0/24 fd00::/64", []string{"10.244.1.2/30"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pool(t, tt.ranges, tt.exclude)
			if diff := cmp.Diff(tt.want, everything(p)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if p.Capacity() != len(tt.want) {
				t.Errorf("Capacity() = %d, want %d", p.Capacity(), len(tt.want))
			}
		})
	}
}

func TestPoolSizes(t *testing.T) {
	for bits := 16; bits <= 30; bits++ {
		p := pool(t, fmt.Sprintf("10.244.0.0/%d", bits), "")
		if want := 1<<(32-bits) - 3; p.Capacity() != want {
			t.Errorf("/%d: capacity %d, want %d", bits, p.Capacity(), want)
		}
	}
	for bits := 64; bits <= 120; bits++ {
		p := pool(t, fmt.Sprintf("fd00::/%d", bits), "")
		want := ipam.MaxPositions - 2
		if bits > 112 {
			want = 1<<(128-bits) - 2
		}
		if p.Capacity() != want {
			t.Errorf("IPv6 /%d: capacity %d, want %d", bits, p.Capacity(), want)
		}
	}
	for ranges, want := range map[string]int{
		"10.244.0.0/24 fd00::/64":                     253, // IPv4 is the smaller
		"10.244.0.0/16 fd00::/120":                    254, // IPv6 is
		"10.244.0.0/24 fd00::/120":                    253,
		"10.244.0.0/16 10.245.0.0/16":                 ipam.MaxPositions - 3, // more than a bridge has ports
		"fd00::/64 fd00:1::/64":                       ipam.MaxPositions - 2,
		"10.244.0.0/24 10.244.1.0/24 fd00::/120":      253,
		"10.244.0.0/24 10.244.1.0/24 10.244.2.0/26":   253 + 253 + 61,
		"10.244.0.0/30 10.244.0.4/30 10.244.0.8/30":   3,
		"10.244.0.0/29 fd00::/126 fd00::8/125":        3, // 2, 3 and, past the second gateway, 6
		"255.255.255.0/24":                            253,
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120": 254,
	} {
		if got := pool(t, ranges, "").Capacity(); got != want {
			t.Errorf("%s: capacity %d, want %d", ranges, got, want)
		}
	}
}

// Every position's addresses lie in their range, are unique, are never a
// gateway, a range's own address or a broadcast address, and lead back to the
// position.
func TestPositionsAndAddressesCorrespond(t *testing.T) {
	for _, ranges := range []string{
		"10.244.1.0/24", "10.244.0.0/16 fd00::/64", "fd00::/112", "fd00:0:0:1::/64 fd00:0:0:2::/120",
		"10.244.1.0/25 10.9.0.0/28 10.244.3.0/24 fd00::/120 fd00:1::/64", "fd00::ffff:ffff:ff00:0/104",
	} {
		p := pool(t, ranges, "10.244.1.17/32 fd00::20/123")
		reserved := map[netip.Addr]bool{}
		for _, r := range prefixes(t, ranges) {
			reserved[r.Addr()], reserved[ipam.Gateway(r)] = true, true
			if b := r.Addr().As4; r.Addr().Is4() {
				last := b()
				host := uint32(1)<<(32-r.Bits()) - 1
				for i := range last {
					last[i] |= byte(host >> (24 - 8*i))
				}
				reserved[netip.AddrFrom4(last)] = true
			}
		}
		seen := map[netip.Addr]bool{}
		for i := range p.Size() {
			for _, a := range p.At(i) {
				addr := a.Prefix.Addr()
				if seen[addr] || reserved[addr] || p.Excludes(addr) {
					t.Fatalf("%s: position %d is %s: seen %t, reserved %t, excluded %t", ranges, i, addr, seen[addr], reserved[addr], p.Excludes(addr))
				}
				seen[addr] = true
				if !a.Prefix.Contains(a.Gateway) || a.Gateway != ipam.Gateway(a.Prefix.Masked()) {
					t.Fatalf("%s: %s has the gateway %s", ranges, a.Prefix, a.Gateway)
				}
				if back, ok := p.Position(addr); !ok || back != i {
					t.Fatalf("%s: %s is at %d, and Position says %d, %t", ranges, addr, i, back, ok)
				}
				if again, ok := p.For(addr); !ok || again != a {
					t.Fatalf("%s: For(%s) = %v, %t", ranges, addr, again, ok)
				}
			}
		}
		if len(seen) == 0 {
			t.Errorf("%s gives nothing", ranges)
		}
	}
}

func TestAddressesOutsideThePool(t *testing.T) {
	p := pool(t, "10.244.1.0/24 10.244.2.0/24 fd00::/64", "10.244.1.9/32")
	for text, want := range map[string]struct{ position, given bool }{
		"10.244.1.7":           {true, true},
		"10.244.1.9":           {true, false}, // excluded
		"10.244.2.0":           {true, false}, // a range's own
		"10.244.2.1":           {true, false}, // a gateway
		"10.244.1.255":         {true, false}, // broadcast
		"10.244.3.1":           {false, false},
		"9.255.255.255":        {false, false},
		"fd00::7":              {true, true},
		"fd00::dead:beef":      {false, true}, // beyond the last position, but wanted addresses may be
		"fd01::7":              {false, false},
		"::ffff:10.244.1.7":    {false, false},
		"fd00::ffff:ffff:0:12": {false, true},
	} {
		a := netip.MustParseAddr(text)
		if _, ok := p.Position(a); ok != want.position {
			t.Errorf("Position(%s) is %t, want %t", a, ok, want.position)
		}
		if _, ok := p.For(a); ok != want.given {
			t.Errorf("For(%s) is %t, want %t", a, ok, want.given)
		}
	}
	for _, i := range []int{-1, p.Size(), p.Size() + 1, 0, 1, 9, 255, 256, 257, 511} {
		if got := p.At(i); got != nil {
			t.Errorf("At(%d) = %v, want none", i, got)
		}
	}
}

func TestGateways(t *testing.T) {
	p := pool(t, "fd00:1::/64 10.244.1.0/24 fd00::/120 10.9.0.128/25", "")
	want := prefixes(t, "10.244.1.1/24 10.9.0.129/25 fd00:1::1/64 fd00::1/120")
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(p.Gateways())); diff != "" {
		t.Error(diff)
	}
	if p.Families() != 2 {
		t.Errorf("Families() = %d", p.Families())
	}
}

func TestPoolsThatGiveNothing(t *testing.T) {
	for name, tt := range map[string]struct{ ranges, exclude string }{
		"no range":            {"", ""},
		"everything excluded": {"10.244.1.0/30", "10.244.1.2/32"},
		"one family excluded": {"10.244.1.0/29 fd00::/64", "fd00::/112"},
	} {
		if p, err := ipam.New(prefixes(t, tt.ranges), prefixes(t, tt.exclude)); err == nil {
			t.Errorf("%s: no error, capacity %d", name, p.Capacity())
		}
	}
}
