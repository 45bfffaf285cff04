// Package ipam says which address comes next. A Pool numbers the addresses of
// the node's ranges (pure arithmetic), and Hints remembers in one small file
// when each was last in use. Neither of them gives an address to anybody: that
// is a claim in the kernel, made by whoever calls. It must not know the kernel,
// CNI or pkg/bridge, log, or read flags, the environment or the clock.
package ipam

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"
)

// MaxPositions is how many addresses of a family a Pool numbers. A bridge holds
// 1,023 ports, so a wider range gives a pod nothing more.
const MaxPositions = 1 << 16

// An Address is an address for a pod's interface.
type Address struct {
	// Prefix is the address with the length of its range.
	Prefix netip.Prefix
	// Gateway is the gateway of that range.
	Gateway netip.Addr
}

// A Pool numbers the addresses of one or more ranges per family. A position is
// an address's distance from the start of the first range of its family, the
// ranges of a family laid end to end; so one position stands for an IPv4 and an
// IPv6 address, alike in their last digits: 10.244.1.7 and fd00:10:244:1::7.
type Pool struct {
	ranges  [][]netip.Prefix // per family that is in use, in the order given
	exclude []netip.Prefix
	size    int
}

// New returns the Pool of the given ranges, less the excluded ones. The ranges
// are masked, do not overlap and hold four addresses or more.
func New(ranges, exclude []netip.Prefix) (*Pool, error) {
	p := &Pool{exclude: exclude, size: MaxPositions}
	for _, is4 := range []bool{true, false} {
		family := slices.DeleteFunc(slices.Clone(ranges), func(r netip.Prefix) bool { return r.Addr().Is4() != is4 })
		if len(family) > 0 {
			p.ranges = append(p.ranges, family)
			p.size = min(p.size, int(min(total(family), MaxPositions)))
		}
	}
	if len(p.ranges) == 0 {
		return nil, errors.New("no range to take addresses from")
	}
	if len(p.Longest(1, nil, 0, nil)) == 0 {
		return nil, errors.New("every address is excluded or reserved")
	}
	return p, nil
}

// total is the number of addresses in some ranges, or the largest number.
func total(ranges []netip.Prefix) uint64 {
	var n uint64
	for _, r := range ranges {
		if n += span(r); n < span(r) {
			return math.MaxUint64
		}
	}
	return n
}

// span is the number of addresses in a range, or the largest number.
func span(r netip.Prefix) uint64 {
	host := r.Addr().BitLen() - r.Bits()
	if host >= 64 {
		return math.MaxUint64
	}
	return 1 << host
}

// Size is the number of positions, 0 to Size-1, usable or not.
func (p *Pool) Size() int { return p.size }

// Capacity is the number of positions that can be given to a pod.
func (p *Pool) Capacity() int {
	n := 0
	for i := range p.size {
		if p.usable(i) {
			n++
		}
	}
	return n
}

// At returns the addresses of a position, one per family with IPv4 first, and
// nil when one of them is excluded, a gateway or otherwise not for pods.
func (p *Pool) At(position int) []Address {
	if position < 0 || position >= p.size || !p.usable(position) {
		return nil
	}
	out := make([]Address, len(p.ranges))
	for i, family := range p.ranges {
		r, offset := locate(family, uint64(position))
		out[i] = Address{netip.PrefixFrom(add(r.Addr(), offset), r.Bits()), Gateway(r)}
	}
	return out
}

func (p *Pool) usable(position int) bool {
	for _, family := range p.ranges {
		r, offset := locate(family, uint64(position))
		if reserved(r, offset) || p.Excludes(add(r.Addr(), offset)) {
			return false
		}
	}
	return true
}

// locate finds the range in which a position lies and its offset in there.
func locate(family []netip.Prefix, position uint64) (netip.Prefix, uint64) {
	for _, r := range family {
		if position < span(r) {
			return r, position
		}
		position -= span(r)
	}
	panic("ipam: position outside the pool")
}

// reserved is true for a range's own address, its gateway and, in IPv4, its
// broadcast address.
func reserved(r netip.Prefix, offset uint64) bool {
	return offset < 2 || r.Addr().Is4() && offset == span(r)-1
}

// Excludes tells whether an address is one of those never to be given out.
func (p *Pool) Excludes(a netip.Addr) bool {
	return slices.ContainsFunc(p.exclude, func(e netip.Prefix) bool { return e.Contains(a) })
}

// For returns an address with its range's length and gateway, and false when it
// is in no range of the pool, excluded, or reserved. It may lie beyond the last
// position.
func (p *Pool) For(a netip.Addr) (Address, bool) {
	for _, family := range p.ranges {
		for _, r := range family {
			if r.Contains(a) {
				return Address{netip.PrefixFrom(a, r.Bits()), Gateway(r)},
					!reserved(r, distance(r.Addr(), a)) && !p.Excludes(a)
			}
		}
	}
	return Address{}, false
}

// Position returns the position of an address, and false when the pool has
// none for it.
func (p *Pool) Position(a netip.Addr) (int, bool) {
	for _, family := range p.ranges {
		before := uint64(0)
		for _, r := range family {
			if r.Contains(a) {
				at := before + distance(r.Addr(), a)
				return int(at), at < uint64(p.size)
			}
			if before += span(r); before >= uint64(p.size) {
				break
			}
		}
	}
	return 0, false
}

// Gateways returns the gateway of every range with the range's length.
func (p *Pool) Gateways() []netip.Prefix {
	var out []netip.Prefix
	for _, family := range p.ranges {
		for _, r := range family {
			out = append(out, netip.PrefixFrom(Gateway(r), r.Bits()))
		}
	}
	return out
}

// Families is the number of address families in use.
func (p *Pool) Families() int { return len(p.ranges) }

// Gateway returns the first usable address of a range.
func Gateway(r netip.Prefix) netip.Addr { return r.Masked().Addr().Next() }

// add returns the address n after a; the caller knows that it exists.
func add(a netip.Addr, n uint64) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	low := binary.BigEndian.Uint64(b[8:])
	binary.BigEndian.PutUint64(b[8:], low+n)
	if low+n < low {
		binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+1)
	}
	return netip.AddrFrom16(b)
}

// distance returns b-a for addresses of one family that are less than 2^64
// apart.
func distance(a, b netip.Addr) uint64 {
	if a.Is4() {
		x, y := a.As4(), b.As4()
		return uint64(binary.BigEndian.Uint32(y[:]) - binary.BigEndian.Uint32(x[:]))
	}
	x, y := a.As16(), b.As16()
	return binary.BigEndian.Uint64(y[8:]) - binary.BigEndian.Uint64(x[8:])
}
