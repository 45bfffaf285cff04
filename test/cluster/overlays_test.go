package cluster_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vpcroute/vpcroute/test/cluster"
)

// TestOverlays builds the overlay of every cloud: the base as it is, with the
// cloud's configuration in the one place where the controller looks for it.
func TestOverlays(t *testing.T) {
	base := len(cluster.Render(t, "../../manifests/base"))
	overlays, err := filepath.Glob("../../manifests/overlays/*")
	if err != nil || len(overlays) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	for _, dir := range overlays {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			objects := cluster.Render(t, dir)
			if len(objects) != base {
				t.Errorf("%d objects, and %d in the base", len(objects), base)
			}
			config, mounted := configOf(t, objects)
			if config == nil || config.GetName() != mounted {
				t.Fatalf("the controller mounts %q, and its configuration is %v", mounted, config)
			}
			if got, _, _ := unstructured.NestedString(config.Object, "data", "config.yaml"); got != string(want) {
				t.Errorf("the configuration is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// configOf finds the configuration, and the name under which it is mounted.
func configOf(t *testing.T, objects []*unstructured.Unstructured) (config *unstructured.Unstructured, mounted string) {
	t.Helper()
	for _, o := range objects {
		switch o.GetKind() {
		case "ConfigMap":
			config = o
		case "Deployment":
			volumes, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
			if err != nil || len(volumes) != 1 {
				t.Fatalf("%d volumes: %v", len(volumes), err)
			}
			mounted, _, _ = unstructured.NestedString(volumes[0].(map[string]any), "configMap", "name")
		}
	}
	return config, mounted
}
