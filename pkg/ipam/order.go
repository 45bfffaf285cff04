package ipam

import (
	"iter"
	"slices"
)

// An Aged position is one that can be given to a pod.
type Aged struct {
	Position int
	// Stamp is when it was last in use, 0 for never.
	Stamp Stamp
}

// Longest returns up to n positions of the pool that can be given to a pod, the
// one released longest ago first and those never used before all others, in the
// order of their addresses. stamps are those of Hints.Stamps, or nil; a stamp
// after now is of another boot and counts as never. Positions for which skip is
// true are left out; a nil skip leaves out none.
func (p *Pool) Longest(n int, stamps iter.Seq2[int, Stamp], now Stamp, skip func(position int) bool) []Aged {
	best := make([]Aged, 0, n+1)
	for a := range p.aged(stamps, now) {
		if len(best) == n && best[n-1].Stamp == 0 {
			break // none is older than never
		}
		younger := len(best) == n && a.Stamp >= best[n-1].Stamp
		if !younger && p.usable(a.Position) && (skip == nil || !skip(a.Position)) {
			best = insert(best, a, n)
		}
	}
	return best
}

// aged yields every position with its stamp.
func (p *Pool) aged(stamps iter.Seq2[int, Stamp], now Stamp) iter.Seq[Aged] {
	if stamps == nil {
		stamps = (*Hints)(nil).Stamps()
	}
	return func(yield func(Aged) bool) {
		next := 0
		for position, s := range stamps {
			if s < 0 || s > now {
				s = 0
			}
			if position == p.size || !yield(Aged{position, s}) {
				return
			}
			next = position + 1
		}
		for ; next < p.size; next++ {
			if !yield(Aged{next, 0}) {
				return
			}
		}
	}
}

// insert puts a behind all that are as old, and keeps the oldest n.
func insert(best []Aged, a Aged, n int) []Aged {
	at := len(best)
	for at > 0 && best[at-1].Stamp > a.Stamp {
		at--
	}
	best = slices.Insert(best, at, a)
	return best[:min(len(best), n)]
}
