package sandbox_test

import (
	"os"
	"testing"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestNamespacesAreSeparate(t *testing.T) {
	a, b := sandbox.New(t, "a"), sandbox.New(t, "b")
	a.Run(t, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	if _, err := a.Try("ip", "link", "show", "v0"); err != nil {
		t.Errorf("v0 is not in the namespace it was made in: %v", err)
	}
	if out, err := b.Try("ip", "link", "show", "v0"); err == nil {
		t.Errorf("v0 is in the other namespace too: %s", out)
	}
}

func TestSandboxHasItsOwnRun(t *testing.T) {
	entries, err := os.ReadDir("/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "netns" && e.Name() != "bin" {
			t.Errorf("/run has %s of the machine in it", e.Name())
		}
	}
}
