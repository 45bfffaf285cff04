package node

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixes(s string) []netip.Prefix {
	var out []netip.Prefix
	for f := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}

func TestKeepIntervals(t *testing.T) {
	for name, c := range map[string]struct {
		keep, except string
		want         []string
	}{
		"nothing listed":           {"", "", nil},
		"one range":                {"10.0.0.0/8", "", []string{"10.0.0.0-10.255.255.255"}},
		"neighbours become one":    {"10.0.0.0/9 10.128.0.0/9", "", []string{"10.0.0.0-10.255.255.255"}},
		"a hole":                   {"10.0.0.0/8", "10.1.0.0/16", []string{"10.0.0.0-10.0.255.255", "10.2.0.0-10.255.255.255"}},
		"a range inside the hole":  {"10.0.0.0/8 10.1.2.0/24", "10.1.0.0/16", []string{"10.0.0.0-10.0.255.255", "10.1.2.0-10.1.2.255", "10.2.0.0-10.255.255.255"}},
		"exception without effect": {"10.0.0.0/8", "11.0.0.0/8", []string{"10.0.0.0-10.255.255.255"}},
		"everything":               {"0.0.0.0/0", "", []string{"0.0.0.0-255.255.255.255"}},
		"all but one address":      {"0.0.0.0/0", "255.255.255.255/32", []string{"0.0.0.0-255.255.255.254"}},
		"other family is ignored":  {"fd00::/8", "", nil},
		"overlapping in both":      {"10.0.0.0/8 10.0.0.0/16", "10.0.0.0/12", []string{"10.0.0.0-10.0.255.255", "10.16.0.0-10.255.255.255"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := Masquerade{Keep: prefixes(c.keep), Exceptions: prefixes(c.except)}
			var got []string
			for _, i := range m.keepIntervals(true) {
				got = append(got, i.first.String()+"-"+i.last.String())
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMostSpecificWins compares the intervals of 500 random entries with the
// longest match done address by address.
func TestMostSpecificWins(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 20 {
		var m Masquerade
		for range 500 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(256))}), 8+r.IntN(25)).Masked()
			if r.IntN(2) == 0 {
				m.Keep = append(m.Keep, p)
			} else {
				m.Exceptions = append(m.Exceptions, p)
			}
		}
		kept := m.keepIntervals(true)
		for range 5000 {
			a := netip.AddrFrom4([4]byte{10, byte(r.IntN(5)), byte(r.IntN(256)), byte(r.IntN(256))})
			want := longest(m.Keep, a) > longest(m.Exceptions, a)
			got := false
			for _, i := range kept {
				got = got || i.first.Compare(a) <= 0 && a.Compare(i.last) <= 0
			}
			if got != want {
				t.Fatalf("%v keeps the pod's address: %v, want %v", a, got, want)
			}
		}
	}
}

func TestMasqueradeValidate(t *testing.T) {
	m := Masquerade{
		Keep:       []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("192.168.0.0/16")},
		Exceptions: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), {}},
	}
	err := m.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"nonMasqueradeCIDRs: 10.1.2.3/8 is not a range, use one like 10.0.0.0/8",
		"masqueradeCIDRs: 192.168.0.0/16 is in nonMasqueradeCIDRs too",
		"masqueradeCIDRs: invalid Prefix is not a range, use one like 10.0.0.0/8",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if err := (Masquerade{Keep: SpecialUse()}).Validate(); err != nil {
		t.Errorf("the default is refused: %v", err)
	}
}
