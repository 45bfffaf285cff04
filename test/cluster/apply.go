package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Render returns the objects of a kustomization, as "kubectl kustomize" does.
func Render(t testing.TB, dir string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range resources.Resources() {
		content, err := r.MarshalJSON()
		object := &unstructured.Unstructured{}
		if err == nil {
			err = object.UnmarshalJSON(content)
		}
		if err != nil {
			t.Fatalf("kustomize %s: %s: %v", dir, r.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects
}

// Apply applies a kustomization as "kubectl apply -k --server-side" does, which
// refuses unknown fields. It waits for a CRD to be served before it goes on.
func (c *Cluster) Apply(t testing.TB, dir string) {
	t.Helper()
	c.ApplyObjects(t, Render(t, dir)...)
}

// ApplyObjects is Apply for objects.
func (c *Cluster) ApplyObjects(t testing.TB, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := c.apply(t.Context(), o); err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func (c *Cluster) apply(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o = o.DeepCopy()
	for {
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership)
		// A kind is unknown until its CRD is served.
		if meta.IsNoMatchError(err) && sleep(ctx) {
			continue
		}
		if err != nil || o.GetKind() != "CustomResourceDefinition" {
			return err
		}
		return c.waitEstablished(ctx, o)
	}
}

// waitEstablished waits until the API server serves a CRD's kind.
func (c *Cluster) waitEstablished(ctx context.Context, crd *unstructured.Unstructured) error {
	for {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		status, _ := crd.Object["status"].(map[string]any)
		conditions, _ := status["conditions"].([]any)
		if slices.ContainsFunc(conditions, isEstablished) {
			return nil
		}
		if !sleep(ctx) {
			return fmt.Errorf("not served: conditions %v", conditions)
		}
	}
}

func isEstablished(condition any) bool {
	c, _ := condition.(map[string]any)
	return c["type"] == "Established" && c["status"] == "True"
}

// sleep waits a little; it is false when ctx has ended.
func sleep(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}
