package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == launchVerb {
		os.Exit(launch(os.Args[2:]))
	}
	sandbox.Main(m)
}

// TestMeasure runs a plan as small as can be, with every program, so that the
// benchmark is known to work when it is wanted. It says nothing about figures.
func TestMeasure(t *testing.T) {
	const peers = "github.com/containernetworking/plugins/plugins/"
	bin := t.TempDir() + "/"
	build(t, "..", bin, peers+"main/bridge", peers+"main/ptp", peers+"ipam/host-local")
	build(t, "../..", filepath.Join(bin, "vpcroute"), "./cmd/cni")

	figures, err := measure(bin, plan{levels: []int{0, 2}, rounds: 2, groups: 1, bursts: 1}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if f.Ours <= 0 || f.Peer <= 0 || f.Ratio <= 0 {
			t.Errorf("%s against %s: nothing was measured: %+v", f.Name, f.Against, f)
		}
	}
	for _, name := range []string{"VERSION: a program's start and end", "ADD, 0 pods", "DEL, 2 pods", "16 ADDs at once, 2 pods", "burst: 110 ADDs at once", "peak memory of DEL", "programs, stripped"} {
		if !slices.ContainsFunc(figures, func(f report.Figure) bool { return f.Name == name && f.Against == peer }) {
			t.Errorf("there is no figure for %q beside %s", name, peer)
		}
	}
}

func build(t *testing.T, module, out string, packages ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-o", out}, packages...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", packages, err, text)
	}
}

func TestFiguresHoldTheGoals(t *testing.T) {
	ms := func(n int) []cost { return []cost{{wall: time.Duration(n) * time.Millisecond}} }
	at := func(mine, theirs int) measured {
		s := samples{ours: ms(mine), peer: ms(theirs), other: ms(theirs)}
		return measured{add: s, del: s}
	}
	figures := slices.Concat(levelFigures(0, at(5, 20), at(5, 20)), levelFigures(110, at(7, 20), at(7, 20)), levelFigures(250, at(7, 20), at(7, 20)))
	figures = append(figures, rise(figures)...)
	met := map[string]bool{}
	for _, f := range figures {
		if f.Met != nil {
			met[f.Name+" / "+f.Against] = *f.Met
		}
	}
	for name, want := range map[string]bool{
		"ADD, 110 pods / " + peer:              true,
		"ADD, 250 pods / " + peer:              false, // 0.35 where 0.25 is the goal
		"DEL, 250 pods / " + peer:              true,
		"16 ADDs at once, 250 pods / " + peer:  true,
		"ADD, 250 pods / vpcroute with 0 pods": false, // 1.4 where 1.2 is the goal
	} {
		if got, ok := met[name]; !ok || got != want {
			t.Errorf("%s: met is %v (there: %v), want %v", name, got, ok, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []int
	}{{"0,110, 250", []int{0, 110, 250}}, {"5", []int{5}}, {"", nil}, {"10,5", nil}, {"5,5", nil}, {"-1", nil}, {"1001", nil}, {"a", nil}} {
		got, err := numbers(tc.in)
		if !slices.Equal(got, tc.want) || (err == nil) != (tc.want != nil) {
			t.Errorf("numbers(%q) = %v, %v; want %v", tc.in, got, err, tc.want)
		}
	}
}
