package ipam_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/ipam"
)

func openHints(t testing.TB, dir string, p *ipam.Pool) *ipam.Hints {
	t.Helper()
	h, err := ipam.OpenHints(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestHintsOutliveTheProcess(t *testing.T) {
	dir, p := filepath.Join(t.TempDir(), "made", "if", "missing"), pool(t, "10.244.1.0/24", "")
	h := openHints(t, dir, p)
	if got := stamps(h); len(got) != 256 || slices.Max(got) != 0 {
		t.Fatalf("a new file knows of %v", got)
	}
	for i, stamp := range map[int]time.Duration{0: 1, 7: time.Hour, 255: 3 * time.Second} {
		if err := h.Touch(i, stamp); err != nil {
			t.Fatal(err)
		}
	}
	again := openHints(t, dir, p)
	got := stamps(again)
	if got[0] != 1 || got[7] != time.Hour || got[255] != 3*time.Second || got[8] != 0 {
		t.Errorf("read back %v", got)
	}
	if again.Stamp(7) != time.Hour || again.Stamp(-1) != 0 || again.Stamp(256) != 0 {
		t.Error("single stamps differ from the list")
	}
	if err := again.Touch(256, 1); err != nil || len(stamps(again)) != 256 {
		t.Error("a position outside the pool grows the file")
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %v", got)
	}
}

func TestHintsOfOtherRangesAreNotMixedUp(t *testing.T) {
	dir := t.TempDir()
	a, b := pool(t, "10.244.1.0/24", ""), pool(t, "10.244.2.0/24", "")
	if err := openHints(t, dir, a).Touch(7, time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := openHints(t, dir, b).Stamp(7); got != 0 {
		t.Errorf("10.244.2.7 has the stamp %v of 10.244.1.7", got)
	}
	if got := openHints(t, dir, pool(t, "10.244.1.0/24", "10.244.1.9/32")).Stamp(7); got != time.Hour {
		t.Errorf("an excluded address costs the others their stamps: %v", got)
	}
}

// R008: whatever happens to the file, it is kept for people to look at, named in
// the warning, and replaced.
func TestDamagedHintsAreKeptAndReplaced_R008(t *testing.T) {
	random := make([]byte, 100)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	damages := map[string]func(whole []byte) []byte{
		"truncated to nothing": func([]byte) []byte { return nil },
		"100 random bytes":     func([]byte) []byte { return random },
		"one byte short":       func(b []byte) []byte { return b[:len(b)-1] },
		"one byte long":        func(b []byte) []byte { return append(b, 0) },
		"wrong beginning":      func(b []byte) []byte { return append([]byte("X"), b[1:]...) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir, p := t.TempDir(), pool(t, "10.244.1.0/24 fd00::/64", "")
			openHints(t, dir, p)
			path := filepath.Join(dir, files(t, dir)[0])
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			damaged := damage(slices.Clone(whole))
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			h, err := ipam.OpenHints(dir, p)
			var report *ipam.DamagedError
			if !errors.As(err, &report) || report.Path != path || !strings.Contains(err.Error(), path) {
				t.Fatalf("the warning is %v, and does not name %s", err, path)
			}
			if kept, err := os.ReadFile(report.Copy); err != nil || !bytes.Equal(kept, damaged) {
				t.Errorf("the copy %s is not what was found: %v", report.Copy, err)
			}
			defer h.Close()
			if got := stamps(h); len(got) != 256 || slices.Max(got) != 0 {
				t.Errorf("the new file knows of %v", got)
			}
			openHints(t, dir, p) // and is sound
		})
	}
}

func TestHintsThatCannotBeHad(t *testing.T) {
	p := pool(t, "10.244.1.0/24", "")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := ipam.OpenHints(file, p)
	if h != nil || err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("OpenHints in a file: %v, %v", h, err)
	}
	if stamps(h) != nil || h.Stamp(7) != 0 || h.Touch(7, 1) != nil || h.Close() != nil {
		t.Error("no hints are not the same as hints that know nothing")
	}
}

// Many callers make the file at the same moment; none sees half of it, and none
// takes it for damaged.
func TestHintsAtTheSameMoment(t *testing.T) {
	p := pool(t, "10.244.1.0/24", "")
	for range 20 {
		dir := filepath.Join(t.TempDir(), "state")
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				h, err := ipam.OpenHints(dir, p)
				if err != nil {
					t.Error(err)
					return
				}
				defer h.Close()
				if err := h.Touch(i, time.Duration(i+1)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i, stamp := range stamps(openHints(t, dir, p))[:64] {
			if stamp != time.Duration(i+1) {
				t.Errorf("the stamp of %d is lost: %v", i, stamp)
			}
		}
		if got := files(t, dir); len(got) != 1 {
			t.Errorf("the directory holds %v", got)
		}
	}
}

// stamps are those of a hint file, in the order of their positions.
func stamps(h *ipam.Hints) []ipam.Stamp {
	var out []ipam.Stamp
	for _, s := range h.Stamps() {
		out = append(out, s)
	}
	return out
}

func positions(aged []ipam.Aged) []int {
	out := []int{}
	for _, a := range aged {
		out = append(out, a.Position)
	}
	return out
}

func TestLongest(t *testing.T) {
	p := pool(t, "10.244.1.0/29", "10.244.1.4/32") // positions 2, 3, 5, 6
	now := time.Hour
	tests := map[string]struct {
		stamps map[int]ipam.Stamp
		n      int
		skip   []int
		want   []int
	}{
		"never used, in order":             {nil, 10, nil, []int{2, 3, 5, 6}},
		"no more than asked for":           {nil, 2, nil, []int{2, 3}},
		"released longest ago first":       {map[int]ipam.Stamp{2: 40, 3: 10, 5: 30, 6: 20}, 10, nil, []int{3, 6, 5, 2}},
		"and fewer of those":               {map[int]ipam.Stamp{2: 40, 3: 10, 5: 30, 6: 20}, 2, nil, []int{3, 6}},
		"never used before used":           {map[int]ipam.Stamp{2: 1, 3: 1}, 10, nil, []int{5, 6, 2, 3}},
		"the one just released comes last": {map[int]ipam.Stamp{2: now}, 4, nil, []int{3, 5, 6, 2}},
		"and comes when nothing is left":   {map[int]ipam.Stamp{2: now}, 4, []int{3, 5, 6}, []int{2}},
		"skipped":                          {map[int]ipam.Stamp{2: 40}, 10, []int{3, 6}, []int{5, 2}},
		"stamps of another boot":           {map[int]ipam.Stamp{2: now + 1, 3: 1, 5: 2, 6: -1}, 10, nil, []int{2, 6, 3, 5}},
		"everything skipped":               {nil, 10, []int{2, 3, 5, 6}, []int{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			stamps := make([]ipam.Stamp, p.Size())
			for i, s := range tt.stamps {
				stamps[i] = s
			}
			got := p.Longest(tt.n, slices.All(stamps), now, func(i int) bool { return slices.Contains(tt.skip, i) })
			if got := positions(got); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	short := slices.All([]ipam.Stamp{0, 0, 5})
	if got := positions(p.Longest(10, short, now, nil)); !slices.Equal(got, []int{3, 5, 6, 2}) {
		t.Errorf("with a short list of stamps: %v", got)
	}
}

// FuzzHints puts arbitrary bytes where the hint file is: whatever they are, each
// address of the range is proposed exactly once and no other one ever.
func FuzzHints(f *testing.F) {
	f.Add([]byte(nil), false)
	f.Add([]byte("vpcroute hints 1"), true)
	f.Add(bytes.Repeat([]byte{0xff}, 32*8), true)
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63), true)
	p := pool(f, "10.244.1.0/27 fd00::/64", "10.244.1.9/32")
	all := positions(p.Longest(p.Size(), nil, 0, nil))
	f.Fuzz(func(t *testing.T, data []byte, soundHeader bool) {
		dir := t.TempDir()
		openHints(t, dir, p)
		path := filepath.Join(dir, files(t, dir)[0])
		if soundHeader {
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			copy(whole[16:], data)
			data = whole
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := ipam.OpenHints(dir, p)
		if h == nil {
			t.Fatal(err)
		}
		defer h.Close()
		got := positions(p.Longest(p.Size(), h.Stamps(), time.Hour, nil))
		slices.Sort(got)
		if !slices.Equal(got, all) {
			t.Errorf("proposed %v, want each of %v", got, all)
		}
	})
}
