package routes

import (
	"iter"
	"net/netip"
	"slices"
)

// A prefixMap maps prefixes to values and finds what lies inside a prefix
// without looking at the rest. The zero map is ready for use.
type prefixMap[V any] struct {
	values map[netip.Prefix]V
	// keys are sorted. Any two prefixes are either disjoint or nested, so what
	// lies inside a prefix follows it without a gap.
	keys []netip.Prefix
}

func (m *prefixMap[V]) get(p netip.Prefix) V { return m.values[p] }

func (m *prefixMap[V]) set(p netip.Prefix, v V) {
	if m.values == nil {
		m.values = map[netip.Prefix]V{}
	}
	if _, found := m.values[p]; !found {
		i, _ := slices.BinarySearchFunc(m.keys, p, netip.Prefix.Compare)
		m.keys = slices.Insert(m.keys, i, p)
	}
	m.values[p] = v
}

func (m *prefixMap[V]) delete(p netip.Prefix) {
	if _, found := m.values[p]; !found {
		return
	}
	delete(m.values, p)
	i, _ := slices.BinarySearchFunc(m.keys, p, netip.Prefix.Compare)
	m.keys = slices.Delete(m.keys, i, i+1)
}

// all yields every entry, sorted. The map must not change meanwhile.
func (m *prefixMap[V]) all() iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		for _, p := range m.keys {
			if !yield(p, m.values[p]) {
				return
			}
		}
	}
}

// within yields the entries inside a prefix, itself included, sorted. The map
// must not change meanwhile.
func (m *prefixMap[V]) within(outer netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		i, _ := slices.BinarySearchFunc(m.keys, outer, netip.Prefix.Compare)
		for _, p := range m.keys[i:] {
			if !contains(outer, p) || !yield(p, m.values[p]) {
				return
			}
		}
	}
}

// widest returns the shortest prefix of the map that contains p, and p itself
// when none does.
func (m *prefixMap[V]) widest(p netip.Prefix) netip.Prefix {
	for bits := range p.Bits() {
		outer := netip.PrefixFrom(p.Addr(), bits).Masked()
		if _, found := m.values[outer]; found {
			return outer
		}
	}
	return p
}

// contains is true when inner lies inside outer or equals it.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
