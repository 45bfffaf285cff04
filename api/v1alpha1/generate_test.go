package v1alpha1

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGeneratedFilesAreCurrent generates again, beside the files that are there.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "controller-gen",
		"object", "crd", "paths=.", "output:dir="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("controller-gen: %v\n%s", err, out)
	}
	for name, there := range map[string]string{
		"zz_generated.deepcopy.go":   "zz_generated.deepcopy.go",
		"vpcroute.io_vpcroutes.yaml": "../../manifests/base/crd/vpcroute.io_vpcroutes.yaml",
	} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(there)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is out of date; run \"make generate\" (-want +got):\n%s", there, diff)
		}
	}
}
