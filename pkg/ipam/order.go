package ipam

// Longest returns up to n positions of the pool that can be given to a pod, the
// one released longest ago first and those never used before all others, in the
// order of their addresses. stamps are those of Hints.Read; a stamp after now
// is of another boot and counts as never. Positions for which skip is true are
// left out; a nil skip leaves out none.
func (p *Pool) Longest(n int, stamps []Stamp, now Stamp, skip func(position int) bool) []int {
	type aged struct {
		position int
		stamp    Stamp
	}
	best := make([]aged, 0, n+1)
	for i := range p.size {
		a := aged{position: i}
		if i < len(stamps) && stamps[i] > 0 && stamps[i] <= now {
			a.stamp = stamps[i]
		}
		if len(best) == n && a.stamp >= best[n-1].stamp || !p.usable(i) || skip != nil && skip(i) {
			continue
		}
		at := len(best)
		for at > 0 && best[at-1].stamp > a.stamp {
			at--
		}
		best = append(best, aged{})
		copy(best[at+1:], best[at:])
		best[at] = a
		if len(best) > n {
			best = best[:n]
		}
	}
	positions := make([]int, len(best))
	for i, a := range best {
		positions[i] = a.position
	}
	return positions
}
