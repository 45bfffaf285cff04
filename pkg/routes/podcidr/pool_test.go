package podcidr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func newPool(t *testing.T, ranges ...Range) *Pool {
	t.Helper()
	p, err := NewPool(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	small = Range{netip.MustParsePrefix("10.244.0.0/22"), 24}
	more  = Range{netip.MustParsePrefix("10.9.0.0/23"), 24}
	six   = Range{netip.MustParsePrefix("fd00:10:244::/62"), 64}
)

func TestReserve(t *testing.T) {
	for _, c := range []struct {
		situation string
		ranges    []Range
		held      []string // by others
		want      []string // one node's podCIDRs a line; "none" when there is none
	}{
		{"nothing held", []Range{small}, nil, []string{"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "none"}},
		{"behind the highest first", []Range{small}, []string{"10.244.1.0/24"}, []string{"10.244.2.0/24", "10.244.3.0/24", "10.244.0.0/24", "none"}},
		{"the last one held", []Range{small}, []string{"10.244.3.0/24"}, []string{"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "none"}},
		{"part of a block held", []Range{small}, []string{"10.244.0.128/25"}, []string{"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "none"}},
		{"several blocks held as one", []Range{small}, []string{"10.244.2.0/23"}, []string{"10.244.0.0/24", "10.244.1.0/24", "none"}},
		{"everything held as one", []Range{small}, []string{"10.0.0.0/8"}, []string{"none"}},
		{"held outside", []Range{small}, []string{"192.168.0.0/16", "0.0.0.0/32", "fd00::/8"}, []string{"10.244.0.0/24"}},
		{"held up to the last address", []Range{{netip.MustParsePrefix("255.255.254.0/23"), 24}}, []string{"255.255.255.0/24"}, []string{"255.255.254.0/24", "none"}},
		{"a second range of the family", []Range{small, more}, []string{"10.244.0.0/22"}, []string{"10.9.0.0/24", "10.9.1.0/24", "none"}},
		{"both families", []Range{small, six}, nil, []string{"10.244.0.0/24 fd00:10:244::/64", "10.244.1.0/24 fd00:10:244:1::/64"}},
		{"IPv6 first", []Range{six, small}, nil, []string{"fd00:10:244::/64 10.244.0.0/24"}},
		{"one family exhausted", []Range{small, six}, []string{"fd00:10:244::/62"}, []string{"none"}},
		{"the range is one podCIDR", []Range{{netip.MustParsePrefix("10.1.2.0/24"), 24}}, nil, []string{"10.1.2.0/24", "none"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			p := newPool(t, c.ranges...)
			p.Hold("others", prefixes(c.held...))
			for i, want := range c.want {
				got, err := p.Reserve(fmt.Sprint("node ", i))
				if want == "none" {
					var exhausted *ExhaustedError
					if !errors.As(err, &exhausted) || len(p.Held(fmt.Sprint("node ", i))) > 0 {
						t.Errorf("node %d got %v, %v: want ExhaustedError", i, got, err)
					}
					continue
				}
				if diff := cmp.Diff(want, strings.Trim(fmt.Sprint(got), "[]")); diff != "" {
					t.Errorf("node %d, %v (-want +got):\n%s", i, err, diff)
				}
			}
		})
	}
}

// A range that was given up rests until the others are used up, and whoever has
// a reservation gets no second one.
func TestReserveAgain(t *testing.T) {
	p := newPool(t, small)
	first, _ := p.Reserve("a")
	if again, err := p.Reserve("a"); err != nil || !slices.Equal(first, again) {
		t.Errorf("asked again a gets %v, %v: want %v still", again, err, first)
	}
	p.Release("a")
	p.Release("nobody")
	for i, want := range []string{"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "10.244.0.0/24"} {
		got, err := p.Reserve(fmt.Sprint(i))
		if err != nil || !slices.Equal(got, prefixes(want)) {
			t.Errorf("got %v, %v: want %s", got, err, want)
		}
	}
}

// R079: what two hold is not free when one of them goes.
func TestHeldByTwo(t *testing.T) {
	p := newPool(t, Range{netip.MustParsePrefix("10.1.2.0/24"), 24})
	for _, held := range []string{"10.1.2.0/24", "10.1.0.0/16"} {
		p.Hold("a", prefixes(held))
		p.Hold("b", prefixes(held))
		p.Release("a")
		if got, err := p.Reserve("c"); err == nil {
			t.Errorf("c got %v, which b still holds as %s", got, held)
		}
		p.Release("b")
		if got, err := p.Reserve("c"); err != nil {
			t.Errorf("c got %v, %v, though nobody holds %s", got, err, held)
		}
		p.Release("c")
	}
}

func TestNewPoolTellsAllThatIsWrong(t *testing.T) {
	_, err := NewPool([]Range{
		{netip.MustParsePrefix("10.244.0.1/16"), 24},
		{netip.MustParsePrefix("10.245.0.0/16"), 15},
		{netip.MustParsePrefix("10.246.0.0/16"), 31},
		{netip.MustParsePrefix("10.247.0.0/16"), 24},
		{netip.MustParsePrefix("10.247.128.0/17"), 24},
	})
	for _, want := range []string{"10.244.0.1/16", "a /15 does not fit into cluster CIDR 10.245.0.0/16", "a /31 of cluster CIDR 10.246.0.0/16", "10.247.0.0/16 and 10.247.128.0/17 overlap"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

// TestPoolAgainstModel lets holders come and go at random, with ranges of every
// size, and compares with a list of what is held: no block that is given
// overlaps any of it, and one is given exactly when there is one.
func TestPoolAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		ranges := []Range{
			{netip.MustParsePrefix("10.0.0.0/26"), 28 + r.IntN(3)},
			{netip.MustParsePrefix("fd00::/58"), 60 + r.IntN(5)},
			{netip.MustParsePrefix("10.0.1.0/27"), 28 + r.IntN(3)},
		}
		p := newPool(t, ranges...)
		held := map[string][]netip.Prefix{}
		for range 400 {
			holder := fmt.Sprint(r.IntN(30))
			switch r.IntN(4) {
			case 0:
				p.Release(holder)
				delete(held, holder)
			case 1:
				of := ranges[r.IntN(len(ranges))].CIDR
				held[holder] = []netip.Prefix{randomPrefix(r, of)}
				p.Hold(holder, held[holder])
			default:
				if len(held[holder]) > 0 {
					continue
				}
				got, err := p.Reserve(holder)
				checkReserved(t, ranges, held, got, err)
				if err == nil {
					held[holder] = got
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// randomPrefix is a range that touches another one.
func randomPrefix(r *rand.Rand, of netip.Prefix) netip.Prefix {
	raw := of.Addr().AsSlice()
	for bit := of.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= byte(r.IntN(2)) << (7 - bit%8)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(addr, min(of.Bits()-1+r.IntN(9), len(raw)*8)).Masked()
}

func checkReserved(t *testing.T, ranges []Range, held map[string][]netip.Prefix, got []netip.Prefix, err error) {
	t.Helper()
	if err == nil && (len(got) != 2 || !got[0].Addr().Is4() || got[1].Addr().Is4()) {
		t.Errorf("got %v, want a podCIDR of each family", got)
	}
	for _, g := range got {
		if !slices.ContainsFunc(ranges, func(r Range) bool { return r.CIDR.Contains(g.Addr()) && g.Bits() == r.Bits && g == g.Masked() }) {
			t.Errorf("%s is no podCIDR of %v", g, ranges)
		}
		if overlapsAny(held, g) {
			t.Errorf("%s is held: %v", g, held)
		}
	}
	var exhausted *ExhaustedError
	if err == nil || !errors.As(err, &exhausted) {
		return
	}
	for _, r := range exhausted.Ranges {
		for block := netip.PrefixFrom(r.CIDR.Addr(), r.Bits); block.IsValid() && r.CIDR.Contains(block.Addr()); block = after(block, r.Bits) {
			if !overlapsAny(held, block) {
				t.Errorf("%v, though %s is free", err, block)
			}
		}
	}
}

func overlapsAny(held map[string][]netip.Prefix, p netip.Prefix) bool {
	for _, ranges := range held {
		if slices.ContainsFunc(ranges, p.Overlaps) {
			return true
		}
	}
	return false
}
