package node

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// A Masquerade says which traffic of this node's pods leaves with the node's
// address instead of the pod's.
type Masquerade struct {
	// PodCIDRs are the node's own ranges; only their traffic is ever touched.
	PodCIDRs []netip.Prefix
	// Bridge is the pods' bridge; what leaves by it stays on the node and keeps
	// its address.
	Bridge string
	// Keep lists the destinations that see the pod's own address
	// (nonMasqueradeCIDRs).
	Keep []netip.Prefix
	// Exceptions lists destinations inside Keep that see the node's address all
	// the same. Of Keep and Exceptions the most specific prefix wins.
	Exceptions []netip.Prefix
}

// SpecialUse lists the destinations that keep the pod's address by default: the
// private and special-use blocks of RFC 6890, RFC 1918, RFC 6598 and RFC 4193,
// link-local and multicast ones included.
func SpecialUse() []netip.Prefix {
	var blocks []netip.Prefix
	for _, s := range []string{
		"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
		"fc00::/7", "fe80::/10", "ff00::/8",
	} {
		blocks = append(blocks, netip.MustParsePrefix(s))
	}
	return blocks
}

// Validate returns every problem of m, joined: a prefix with host bits set, or
// one that stands in both lists.
func (m Masquerade) Validate() error {
	var errs []error
	for _, list := range []struct {
		field    string
		prefixes []netip.Prefix
	}{{"podCIDRs", m.PodCIDRs}, {"nonMasqueradeCIDRs", m.Keep}, {"masqueradeCIDRs", m.Exceptions}} {
		for _, p := range list.prefixes {
			if !p.IsValid() || p != p.Masked() {
				errs = append(errs, fmt.Errorf("%s: %v is not a range, use one like %v", list.field, p, example(p)))
			}
		}
	}
	for _, p := range m.Exceptions {
		if slices.Contains(m.Keep, p) {
			errs = append(errs, fmt.Errorf("masqueradeCIDRs: %v is in nonMasqueradeCIDRs too; keep it in one of them", p))
		}
	}
	return errors.Join(errs...)
}

func example(p netip.Prefix) netip.Prefix {
	if p.IsValid() {
		return p.Masked()
	}
	return netip.MustParsePrefix("10.0.0.0/8")
}

// An interval is a run of addresses of one family, both ends included.
type interval struct{ first, last netip.Addr }

// keepIntervals returns the destinations of a family that keep the pod's
// address as the fewest disjoint intervals, in order.
func (m Masquerade) keepIntervals(is4 bool) []interval {
	keep, except := ofFamily(m.Keep, is4), ofFamily(m.Exceptions, is4)
	var kept []interval
	for _, piece := range split(append(slices.Clone(keep), except...)) {
		if longest(keep, piece.first) <= longest(except, piece.first) {
			continue
		}
		if n := len(kept); n > 0 && kept[n-1].last.Next() == piece.first {
			kept[n-1].last = piece.last
		} else {
			kept = append(kept, piece)
		}
	}
	return kept
}

// split cuts the addresses that the prefixes cover at every end of a prefix, so
// that each prefix covers a piece wholly or not at all.
func split(prefixes []netip.Prefix) []interval {
	var starts []netip.Addr
	for _, p := range prefixes {
		starts = append(starts, p.Masked().Addr())
		if next := lastAddr(p).Next(); next.IsValid() {
			starts = append(starts, next)
		}
	}
	slices.SortFunc(starts, netip.Addr.Compare)
	starts = slices.Compact(starts)
	var pieces []interval
	for i, start := range starts {
		n := longest(prefixes, start)
		if n < 0 {
			continue
		}
		last := lastAddr(netip.PrefixFrom(start, n))
		if i+1 < len(starts) && starts[i+1].Compare(last) <= 0 {
			last = starts[i+1].Prev()
		}
		pieces = append(pieces, interval{start, last})
	}
	return pieces
}

// longest returns the length of the longest prefix that contains a, or -1.
func longest(prefixes []netip.Prefix, a netip.Addr) int {
	n := -1
	for _, p := range prefixes {
		if p.Contains(a) {
			n = max(n, p.Bits())
		}
	}
	return n
}

func ofFamily(prefixes []netip.Prefix, is4 bool) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return p.Addr().Is4() != is4 })
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// byLength orders prefixes from the most specific to the least.
func byLength(a, b netip.Prefix) int {
	return cmp.Or(cmp.Compare(b.Bits(), a.Bits()), a.Addr().Compare(b.Addr()))
}
