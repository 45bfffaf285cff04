package runtime_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestImages has a container runtime take the product's own images and start
// what is in them. That they are what they should be in every other way is
// tested where they are made.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("go", "run", ".", "-out", dir, "-version", "v1.2.3", "-platforms", "linux/"+runtime.GOARCH)
	cmd.Dir = filepath.Join(productDir, "images")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the images: %v\n%s", err, out)
	}
	n := startNode(t, alone)
	for _, name := range []string{"route-controller", "node-agent"} {
		t.Run(name, func(t *testing.T) {
			ref := "ghcr.io/vpcroute/" + name + ":v1.2.3"
			n.Ctr(t, "images", "import", filepath.Join(dir, name+".tar"))
			if out := n.Ctr(t, "images", "check", "name=="+ref); !strings.Contains(out, "complete") {
				t.Errorf("images check says:\n%s", out)
			}
			// The command replaces nothing: it follows the image's entry point.
			out := n.Ctr(t, "run", "--rm", ref, "version-"+name, "/"+name, "--version")
			if want := name + " version v1.2.3"; !strings.Contains(out, want) {
				t.Errorf("the program says %q, want %q", out, want)
			}
		})
	}
}
