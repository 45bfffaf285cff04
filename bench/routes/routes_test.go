package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
)

// TestMeasure runs every scenario with a handful of nodes, so that the benchmark
// is known to work when it is wanted. It says nothing about figures.
func TestMeasure(t *testing.T) {
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-o", bin, "./ours", "./upstream")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	p := plan{bin: bin, fresh: 25, small: 20, large: 30, changes: 1, period: time.Second}
	figures, err := measure(t.Context(), p, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]report.Figure{
		"25 nodes from nothing: calls":                                    {Ours: 26, Against: peer},
		"25 nodes from nothing: duplicate creates":                        {Ours: 0, Against: "the limit"},
		"idle hour, 20 nodes: writes":                                     {Ours: 0, Against: woken},
		"10 % of calls failing, 20 nodes: nodes unavailable after 1h0m0s": {Ours: 0, Against: "the limit"},
	} {
		i := slices.IndexFunc(figures, func(f report.Figure) bool { return f.Name == name && f.Against == want.Against })
		if i < 0 {
			t.Errorf("there is no figure for %q beside %s", name, want.Against)
		} else if figures[i].Ours != want.Ours {
			t.Errorf("%s: ours is %v, want %v", name, figures[i].Ours, want.Ours)
		}
	}
	for _, name := range []string{"25 nodes from nothing: time to the last route", "one node added to 30: processor time", "peak memory, 30 nodes"} {
		for _, against := range []string{peer, woken} {
			if !slices.ContainsFunc(figures, func(f report.Figure) bool { return f.Name == name && f.Against == against && f.Ours > 0 && f.Peer > 0 }) {
				t.Errorf("%s, beside %s: nothing was measured", name, against)
			}
		}
	}
}
