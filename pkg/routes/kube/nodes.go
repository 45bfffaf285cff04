package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

// Nodes follows the cluster's Nodes and keeps of each what the controller needs.
type Nodes struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
}

// ListNodes reads the Nodes once.
func (c *Client) ListNodes(ctx context.Context) ([]routes.Node, error) {
	list, err := c.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []routes.Node
	for i := range list.Items {
		n, _ := routes.FromObject(&list.Items[i])
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func (c *Client) listNodes(ctx context.Context) (*corev1.NodeList, error) {
	list := &corev1.NodeList{}
	if err := c.core.Get().Resource("nodes").Timeout(callTimeout).Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return list, nil
}

// Follow makes an informer that tells the engine of every Node, the reporter of
// every Node's condition, and the allocator, if there is one, of its podCIDRs.
func (c *Client) Follow(reporter *Reporter, engine *routes.Engine, allocator *Allocator) (*Nodes, error) {
	watch := cache.NewListWatchFromClient(c.core, "nodes", metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(watch, &corev1.Node{}, 0, nil)
	if err := informer.SetTransform(trim); err != nil {
		return nil, err
	}
	seen := func(o any) {
		if n, ok := o.(*corev1.Node); ok {
			// An address that cannot be read is as good as none: the cloud's table
			// says what the Node lacks.
			read, _ := routes.FromObject(n)
			reporter.Seen(n.Name, conditionOf(n))
			engine.SetNode(read)
			if allocator != nil {
				allocator.seen(n)
			}
		}
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen,
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				seen(after)
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if n, ok := o.(*corev1.Node); ok {
				engine.DropNode(n.Name)
				reporter.Lost(n.Name)
				if allocator != nil {
					allocator.lost(n.UID)
				}
			}
		},
	})
	return &Nodes{informer, handler}, err
}

// Run follows the Nodes until ctx ends.
func (n *Nodes) Run(ctx context.Context) { n.informer.RunWithContext(ctx) }

// Wait returns nil once every Node of the first list has been told.
func (n *Nodes) Wait(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), n.handler.HasSynced) {
		return fmt.Errorf("list Nodes: %w", context.Cause(ctx))
	}
	return nil
}

// trim drops what the controller never looks at, which is most of a Node.
func trim(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, CreationTimestamp: n.CreationTimestamp},
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, ProviderID: n.Spec.ProviderID},
	}
	if value, found := n.Labels[routes.ExcludeLabel]; found {
		kept.Labels = map[string]string{routes.ExcludeLabel: value}
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			kept.Status.Addresses = append(kept.Status.Addresses, a)
		}
	}
	if given, found := n.Annotations[allocatedAnnotation]; found {
		kept.Annotations = map[string]string{allocatedAnnotation: given}
	}
	if c := conditionOf(n); c != nil {
		kept.Status.Conditions = []corev1.NodeCondition{*c}
	}
	return kept, nil
}

func conditionOf(n *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeNetworkUnavailable })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// same is true for two trimmed versions of a Node that differ in nothing that
// matters: most updates are heartbeats.
func same(before, after any) bool {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	if !okA || !okB {
		return false
	}
	nodeA, _ := routes.FromObject(a)
	nodeB, _ := routes.FromObject(b)
	return nodeA.Equal(nodeB) && sameCondition(conditionOf(a), conditionOf(b))
}

func sameCondition(a, b *corev1.NodeCondition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}
