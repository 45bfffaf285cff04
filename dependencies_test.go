package vpcroute_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:generate go test -run=^Test(Dependencies|Licenses)$ -update .

var update = flag.Bool("update", false, "write the lists of dependencies instead of comparing them")

// TestDependencies compares what each command is built from with the list that
// is checked in beside it, so that a new dependency shows in review.
func TestDependencies(t *testing.T) {
	list := packages(t)
	for _, p := range ownPackages(t) {
		if !matches("./cmd/...", p.short()) {
			continue
		}
		var lines []string
		for _, dep := range p.Deps {
			if d := list[dep]; d == nil || d.Standard && internal(dep) {
				continue
			}
			lines = append(lines, short(dep))
		}
		slices.Sort(lines)
		got := "# The packages that this command is built from, the standard library's internal\n" +
			"# ones left out. Written by \"make generate\".\n" + strings.Join(lines, "\n") + "\n"
		file := filepath.Join(p.Dir, "dependencies.txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Error(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v (run \"make generate\")", err)
			continue
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is built from other packages than its dependencies.txt says; see that each is worth it, then run \"make generate\" (-listed +found)\n%s", p.short(), diff)
		}
	}
}

// internal says whether a package of the standard library is only its own: such
// packages come and go with Go's version.
func internal(path string) bool {
	return strings.HasPrefix(path, "vendor/") || slices.Contains(strings.Split(path, "/"), "internal")
}

// The plugin's budget. It is started twice for every pod, so what it is built
// from is time and memory on every node.
const (
	maxPluginBytes    = 4 << 20
	maxPluginPackages = 115
)

func TestPluginStaysSmall(t *testing.T) {
	plugin := packages(t)[module+"/cmd/cni"]
	if plugin == nil {
		t.Fatal("there is no ./cmd/cni")
	}
	if n := len(plugin.Deps) + 1; n > maxPluginPackages {
		t.Errorf("the plugin is built from %d packages, at most %d are wanted", n, maxPluginPackages)
	}
	program := filepath.Join(t.TempDir(), "vpcroute")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d packages, %d bytes", len(plugin.Deps)+1, info.Size())
	if info.Size() > maxPluginBytes {
		t.Errorf("the plugin has %d bytes stripped, at most %d are wanted", info.Size(), maxPluginBytes)
	}
}
