package netns_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/test/netns"
)

func TestTearDownLeavesNothing(t *testing.T) {
	t.Parallel()
	box, err := netns.Raise(netns.Config{Parent: "/run", Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer box.TearDown()
	stubborn, err := box.Start(box.Nodes[0].Namespace, exec.Command("sh", "-c", "sleep 1000 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is gone already is no error
		if err := box.TearDown(); err != nil {
			t.Fatal(err)
		}
		<-stubborn.Done()
		if found := remains(t, box); len(found) > 0 {
			t.Fatalf("left behind: %v", found)
		}
	}
}

// remains finds what is left of a box.
func remains(t *testing.T, box *netns.Box) []string {
	t.Helper()
	found, err := filepath.Glob("/run/netns/" + box.Name + "-*")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(box.Dir); err == nil {
		found = append(found, box.Dir)
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		if environ, err := os.ReadFile(path); err == nil && strings.Contains(string(environ), box.Dir+"\x00") {
			found = append(found, path)
		}
	}
	return found
}

func TestBoxesTellsKeptFromLeftBehind(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	var dirs [3]string
	for i, end := range []func(*netns.Box) error{
		func(*netns.Box) error { return nil },
		(*netns.Box).Keep,
		(*netns.Box).Abandon,
	} {
		box, err := netns.Raise(netns.Config{Parent: parent, Nodes: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer box.TearDown()
		if err := end(box); err != nil {
			t.Fatal(err)
		}
		dirs[i] = box.Dir
	}
	kept, left, err := netns.Boxes(parent)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept, dirs[1:2]) || !slices.Equal(left, dirs[2:]) {
		t.Errorf("kept %v, want %v; left %v, want %v", kept, dirs[1:2], left, dirs[2:])
	}
}
