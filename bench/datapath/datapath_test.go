package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// TestMeasure has every shape take a short turn, so that the benchmark is known
// to work when it is wanted. It says nothing about figures.
func TestMeasure(t *testing.T) {
	const peers = "github.com/containernetworking/plugins/plugins/"
	bin := t.TempDir() + "/"
	build(t, "..", bin, peers+"main/ptp", peers+"ipam/host-local")
	build(t, "../..", filepath.Join(bin, "vpcroute"), "./cmd/cni")

	figures, err := measure(bin, plan{rounds: 2, turn: 50 * time.Millisecond}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 20 {
		t.Errorf("%d figures, want 20", len(figures))
	}
	for _, f := range figures {
		if f.Ours <= 0 || f.Peer <= 0 || f.Ratio <= 0 {
			t.Errorf("%s against %s: nothing was measured: %+v", f.Name, f.Against, f)
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

// Goals are about the ratio within a round: a machine that is twice as fast in
// one round as in the other is no reason to miss one.
func TestFiguresHoldTheGoals(t *testing.T) {
	found := samples{
		ours:   {{throughput: 99, rate: 50}, {throughput: 198, rate: 100}},
		byHand: {{throughput: 100, rate: 100}, {throughput: 200, rate: 200}},
	}
	met := map[string]bool{}
	for _, f := range found.figures() {
		if f.Met != nil && f.Against == byHand {
			met[f.Name] = *f.Met
		}
	}
	if len(met) != 2 || !met["throughput"] || met["requests"] {
		t.Errorf("met: %v", met)
	}
}
