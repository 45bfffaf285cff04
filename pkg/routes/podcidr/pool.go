package podcidr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// A Range is a cluster CIDR that is cut into podCIDRs.
type Range struct {
	// CIDR is the whole; podCIDRs have Bits leading bits.
	CIDR netip.Prefix
	Bits int
}

// check says what is wrong with a range.
func (r Range) check() error {
	switch {
	case !r.CIDR.IsValid() || r.CIDR != r.CIDR.Masked() || r.CIDR.Addr().Is4In6():
		return fmt.Errorf("%s is not a range, for example 10.244.0.0/16", r.CIDR)
	case r.Bits < r.CIDR.Bits():
		return fmt.Errorf("a /%d does not fit into cluster CIDR %s: want a mask size of at least %d", r.Bits, r.CIDR, r.CIDR.Bits())
	case r.Bits > r.CIDR.Addr().BitLen()-2:
		return fmt.Errorf("a /%d of cluster CIDR %s has no address for a pod: want a mask size of at most %d", r.Bits, r.CIDR, r.CIDR.Addr().BitLen()-2)
	}
	return nil
}

// An ExhaustedError is the answer when everything is held.
type ExhaustedError struct {
	// Ranges are those of the family that has no podCIDR left.
	Ranges []Range
}

// Error names the ranges.
func (e *ExhaustedError) Error() string {
	text := "every podCIDR is held:"
	for i, r := range e.Ranges {
		if i > 0 {
			text += " and"
		}
		text += fmt.Sprintf(" /%ds of %s", r.Bits, r.CIDR)
	}
	return text
}

// A Pool hands out podCIDRs. It is not safe for concurrent use.
type Pool struct {
	families [][]Range // in the order of the podCIDRs of a node
	holders  map[string][]netip.Prefix
	// blocks counts the holders of each podCIDR-sized block; wide are what is
	// held beyond one block.
	blocks map[netip.Prefix]int
	wide   []netip.Prefix
	last   map[Range]netip.Prefix // handed out or held last
}

// NewPool makes a pool of ranges. Ranges of one family serve one after the
// other; a node gets a podCIDR of each family, in the families' order. The error
// names everything that is wrong.
func NewPool(ranges []Range) (*Pool, error) {
	p := &Pool{holders: map[string][]netip.Prefix{}, blocks: map[netip.Prefix]int{}, last: map[Range]netip.Prefix{}}
	var errs []error
	for i, r := range ranges {
		if err := r.check(); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, o := range ranges[:i] {
			if o.CIDR.Overlaps(r.CIDR) {
				errs = append(errs, fmt.Errorf("cluster CIDRs %s and %s overlap", o.CIDR, r.CIDR))
			}
		}
		f := slices.IndexFunc(p.families, func(f []Range) bool { return f[0].CIDR.Addr().Is4() == r.CIDR.Addr().Is4() })
		if f < 0 {
			p.families = append(p.families, []Range{r})
			continue
		}
		p.families[f] = append(p.families[f], r)
	}
	return p, errors.Join(errs...)
}

// Hold takes over what a holder has, in place of whatever it had: any ranges, of
// any size, inside the pool's or not. What several hold is held until the last
// has released it.
func (p *Pool) Hold(holder string, held []netip.Prefix) {
	p.Release(holder)
	if len(held) == 0 {
		return
	}
	held = slices.Clone(held)
	p.holders[holder] = held
	for _, h := range held {
		p.count(h, 1)
	}
}

// Release frees what a holder has.
func (p *Pool) Release(holder string) {
	for _, h := range p.holders[holder] {
		p.count(h, -1)
	}
	delete(p.holders, holder)
}

// Held returns what a holder has.
func (p *Pool) Held(holder string) []netip.Prefix { return slices.Clone(p.holders[holder]) }

// Reserve gives a holder that has nothing a podCIDR of each family, and returns
// what it has. After an ExhaustedError it has nothing still.
func (p *Pool) Reserve(holder string) ([]netip.Prefix, error) {
	if held := p.Held(holder); len(held) > 0 {
		return held, nil
	}
	var found []netip.Prefix
	for _, family := range p.families {
		block, ok := p.free(family)
		if !ok {
			return nil, &ExhaustedError{slices.Clone(family)}
		}
		found = append(found, block)
	}
	p.Hold(holder, found)
	return found, nil
}

// count adds to, or takes from, the holders of a range.
func (p *Pool) count(h netip.Prefix, n int) {
	for _, family := range p.families {
		for _, r := range family {
			switch {
			case !r.CIDR.Overlaps(h):
			case h.Bits() < r.Bits:
				p.countWide(h, n)
				return
			default:
				block := netip.PrefixFrom(h.Addr(), r.Bits).Masked()
				if p.blocks[block] += n; p.blocks[block] == 0 {
					delete(p.blocks, block)
				}
				if last, found := p.last[r]; n > 0 && (!found || last.Compare(block) < 0) {
					p.last[r] = block
				}
				return
			}
		}
	}
}

func (p *Pool) countWide(h netip.Prefix, n int) {
	if n > 0 {
		p.wide = append(p.wide, h)
		return
	}
	if i := slices.Index(p.wide, h); i >= 0 {
		p.wide = slices.Delete(p.wide, i, i+1)
	}
}

// free finds the next block that nobody holds, behind the last one that was
// handed out, so that a range rests before it is used again.
func (p *Pool) free(family []Range) (netip.Prefix, bool) {
	for _, r := range family {
		if block, ok := p.freeIn(r); ok {
			p.last[r] = block
			return block, true
		}
	}
	return netip.Prefix{}, false
}

func (p *Pool) freeIn(r Range) (netip.Prefix, bool) {
	first := netip.PrefixFrom(r.CIDR.Addr(), r.Bits)
	start := first
	if last, found := p.last[r]; found {
		start = within(r, after(last, r.Bits))
	}
	wrapped := false
	for block := start; ; {
		next, held := p.behind(block)
		if !held {
			return block, true
		}
		next = within(r, next)
		// Round once: whatever lies behind the start, then whatever before.
		if next.Compare(block) <= 0 {
			if wrapped {
				return netip.Prefix{}, false
			}
			wrapped = true
		}
		if block = next; wrapped && block.Compare(start) >= 0 {
			return netip.Prefix{}, false
		}
	}
}

// behind returns the block after what is held at a block, and false when nothing
// is.
func (p *Pool) behind(block netip.Prefix) (next netip.Prefix, held bool) {
	for _, w := range p.wide {
		if w.Overlaps(block) {
			return after(w, block.Bits()), true
		}
	}
	return after(block, block.Bits()), p.blocks[block] > 0
}

// within is the block itself when it lies inside a range, else its first one.
func within(r Range, block netip.Prefix) netip.Prefix {
	if block.IsValid() && r.CIDR.Contains(block.Addr()) {
		return block
	}
	return netip.PrefixFrom(r.CIDR.Addr(), r.Bits)
}

// after is the block of a size that follows a range; the zero Prefix behind the
// last address.
func after(p netip.Prefix, bits int) netip.Prefix {
	if p.Bits() == 0 {
		return netip.Prefix{}
	}
	raw := p.Masked().Addr().AsSlice()
	carry := 1 << (7 - (p.Bits()-1)%8)
	for i := (p.Bits() - 1) / 8; i >= 0 && carry > 0; i-- {
		sum := int(raw[i]) + carry
		raw[i], carry = byte(sum), sum>>8
	}
	if carry > 0 {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(addr, bits)
}
