package cluster_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/test/cluster"
)

var controllerAccount = cluster.Account{Namespace: "vpcroute-system", Name: "route-controller"}

// TestAccessIsToldApart makes sure that the tests of the controller's
// permissions can fail: what an account did, what it was forbidden and what it
// never needed are three things.
func TestAccessIsToldApart(t *testing.T) {
	c := cluster.Start(t, cluster.Where{})
	c.Apply(t, base)
	account, err := client.New(c.As(t, controllerAccount), client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := account.List(t.Context(), &corev1.NodeList{}); err != nil {
		t.Errorf("list Nodes: %v", err)
	}
	if err := account.Create(t.Context(), route("allowed")); err != nil {
		t.Errorf("create a VPCRoute: %v", err)
	}
	if err := account.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
		t.Errorf("list Secrets: error is %v, want it forbidden", err)
	}
	if err := account.Delete(t.Context(), &corev1.Node{ObjectMeta: route("node-1").ObjectMeta}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a Node: error is %v, want it forbidden", err)
	}
	did, didNot := c.Used(t, controllerAccount)
	want := []cluster.Access{{Resource: "nodes", Verb: "list"}, {Group: "vpcroute.io", Resource: "vpcroutes", Verb: "create"}}
	if diff := cmp.Diff(want, resources(did)); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
	want = []cluster.Access{{Resource: "nodes", Verb: "delete"}, {Resource: "secrets", Verb: "list"}}
	if diff := cmp.Diff(want, didNot); diff != "" {
		t.Errorf("was forbidden (-want +got):\n%s", diff)
	}
	unused := cluster.Unused(c.Granted(t, controllerAccount), did)
	for _, access := range []cluster.Access{
		{Group: v1alpha1.GroupVersion.Group, Resource: "vpcroutes", Verb: "delete"},
		{Namespace: "vpcroute-system", Group: "coordination.k8s.io", Resource: "leases", Verb: "create"},
	} {
		if !slices.Contains(unused, access) {
			t.Errorf("%v is not among the unused: %v", access, unused)
		}
	}
	for _, access := range resources(did) {
		if slices.Contains(unused, access) {
			t.Errorf("%v was used and is among the unused", access)
		}
	}
}

// resources leaves out what every account may ask: discovery.
func resources(accesses []cluster.Access) (kept []cluster.Access) {
	for _, a := range accesses {
		if a.Resource[0] != '/' {
			kept = append(kept, a)
		}
	}
	return kept
}
