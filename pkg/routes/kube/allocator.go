package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/podcidr"
)

const (
	// allocatorAnnotation says which process allocates for a Node.
	allocatorAnnotation = "vpcroute.io/podcidr-allocator"
	// allocatedAnnotation holds the podCIDRs that the allocator gave to a Node, by
	// which they are told from another allocator's. The API server does not
	// say reliably who wrote a field: metadata.managedFields may be missing.
	allocatedAnnotation = "vpcroute.io/allocated-podcidrs"
	// lookOut is how long the first Node without a podCIDR is left to whoever else
	// may be allocating. kube-controller-manager takes milliseconds.
	lookOut = 5 * time.Second
	// retryAllocation is how long an allocation that failed waits.
	retryAllocation = 2 * time.Second
)

// An Allocator gives podCIDRs to Nodes that have none. The Nodes are its only
// record: the API server lets podCIDRs be written once and never changed
// (ValidateNodeUpdate in k8s.io/kubernetes/pkg/apis/core/validation), and three
// things keep a range from being given twice.
//
//   - A range that was asked for a Node stays that Node's, whatever the answer
//     was, until the Node has podCIDRs or is gone.
//   - Each write names the Node's UID and resourceVersion, so it fails when
//     somebody wrote to the Node since.
//   - Before its first write a new leader reads all Nodes and writes its name to
//     each that has no podCIDR. Whatever a leader before it still has under way
//     names an older resourceVersion, and fails, however late it arrives.
//
// Beside another allocator it stops: both would give the same ranges.
type Allocator struct {
	client   *Client
	leads    func() error
	identity string
	// observe is told what concerns people, failed what is tried again.
	observe func(routes.Event)
	failed  func(error)

	mu       sync.Mutex
	wake     chan struct{}
	pool     *podcidr.Pool
	ranges   []podcidr.Range
	nodes    map[types.UID]*candidate
	begun    bool                 // every Node of the first list is known
	first    time.Time            // when the first Node without a podCIDR was seen
	outside  map[types.UID]string // podCIDRs that none of our ranges holds
	stranger string               // what another allocator did; empty while there is none
	told     string               // the last reason for stopping
}

// A candidate is a Node as far as it concerns allocation.
type candidate struct {
	name, version string
	created       time.Time
	settled       bool // it has podCIDRs, which nobody can change
	excluded      bool
	told          routes.EventKind // the last Event about it
}

// AllocatorStats are figures for metrics.
type AllocatorStats struct {
	// Waiting is the number of Nodes without a podCIDR.
	Waiting int
	// Stopped is true when there is another allocator.
	Stopped bool
}

// NewAllocator makes an allocator of ranges that writes, under an identity no
// other process has, only while leads returns nil. It works once Follow tells it
// of Nodes and Run runs.
func (c *Client) NewAllocator(ranges []podcidr.Range, identity string, leads func() error, observe func(routes.Event), failed func(error)) (*Allocator, error) {
	pool, err := podcidr.NewPool(ranges)
	if err != nil {
		return nil, err
	}
	return &Allocator{
		client: c, leads: leads, identity: identity, observe: observe, failed: failed, wake: make(chan struct{}, 1),
		pool: pool, ranges: ranges, nodes: map[types.UID]*candidate{}, outside: map[types.UID]string{},
	}, nil
}

// Stats returns the figures of this moment.
func (a *Allocator) Stats() AllocatorStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return AllocatorStats{Waiting: len(a.waiting()), Stopped: a.obstacle() != ""}
}

// seen takes a Node, trimmed, as the API server had it at some time.
func (a *Allocator) seen(o *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[o.UID]
	if n == nil {
		n = &candidate{name: o.Name, created: o.CreationTimestamp.Time}
		a.nodes[o.UID] = n
	}
	n.version = o.ResourceVersion
	n.excluded = routes.ParseExclusion(o.Labels) != routes.Included
	if len(o.Spec.PodCIDRs) > 0 && !n.settled {
		n.settled = true
		a.settle(o)
	}
	a.kick()
}

// settle takes over the podCIDRs of a Node.
func (a *Allocator) settle(o *corev1.Node) {
	var held []netip.Prefix
	for _, text := range o.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil || !slices.ContainsFunc(a.ranges, func(r podcidr.Range) bool { return r.CIDR.Overlaps(p) && r.CIDR.Bits() <= p.Bits() }) {
			a.outside[o.UID] = fmt.Sprintf("node %s has podCIDR %s, which lies outside the cluster CIDRs", o.Name, text)
		}
		if err == nil {
			held = append(held, p)
		}
	}
	a.pool.Hold(string(o.UID), held)
	if a.begun && o.Annotations[allocatedAnnotation] != strings.Join(o.Spec.PodCIDRs, ",") {
		a.stranger = fmt.Sprintf("node %s has got podCIDR %s from elsewhere", o.Name, o.Spec.PodCIDRs[0])
	}
}

// lost forgets a Node that is gone, so that its range can be given again.
func (a *Allocator) lost(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(uid)
}

func (a *Allocator) drop(uid types.UID) {
	delete(a.nodes, uid)
	delete(a.outside, uid)
	a.pool.Release(string(uid))
	a.kick()
}

func (a *Allocator) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// obstacle says why nothing is allocated; "" when all is well.
func (a *Allocator) obstacle() string {
	if a.stranger != "" {
		return a.stranger
	}
	for _, uid := range slices.Sorted(maps.Keys(a.outside)) {
		return a.outside[uid]
	}
	return ""
}

// waiting are the Nodes that want a podCIDR, by UID.
func (a *Allocator) waiting() map[types.UID]*candidate {
	found := map[types.UID]*candidate{}
	for uid, n := range a.nodes {
		if !n.settled && !n.excluded {
			found[uid] = n
		}
	}
	return found
}

// Run allocates until ctx ends. synced waits until every Node there is has been
// seen.
func (a *Allocator) Run(ctx context.Context, synced func(context.Context) error) {
	if synced(ctx) != nil {
		return
	}
	for ctx.Err() == nil {
		err := a.begin(ctx)
		if err == nil {
			break
		}
		a.retry(ctx, err)
	}
	for ctx.Err() == nil {
		again, err := a.pass(ctx)
		if err != nil {
			a.retry(ctx, err)
			continue
		}
		a.await(ctx, again)
	}
}

// retry tells what failed and waits before the next try.
func (a *Allocator) retry(ctx context.Context, err error) {
	if ctx.Err() == nil {
		a.failed(fmt.Errorf("allocate podCIDRs: %w", err))
	}
	pause(ctx, retryAllocation)
}

// await waits for news, or for a time unless that is zero.
func (a *Allocator) await(ctx context.Context, again time.Duration) {
	var timer <-chan time.Time
	if again > 0 {
		timer = time.After(again)
	}
	select {
	case <-ctx.Done():
	case <-timer:
	case <-a.wake:
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// begin reads all Nodes as they are now, not as a watch shows them, and puts a
// fence before whatever an earlier leader has under way.
func (a *Allocator) begin(ctx context.Context) error {
	list, err := a.client.listNodes(ctx)
	if err != nil {
		return err
	}
	for i := range list.Items {
		a.take(&list.Items[i])
	}
	a.mu.Lock()
	a.begun = true
	var jobs []func() error
	for uid, n := range a.nodes {
		// Excluded ones too: an earlier leader may not have known them so.
		if name := n.name; !n.settled {
			jobs = append(jobs, func() error {
				return a.patch(ctx, name, uid, map[string]any{"annotations": map[string]string{allocatorAnnotation: a.identity}}, nil)
			})
		}
	}
	a.mu.Unlock()
	return parallel(a.leads, jobs)
}

// take takes a Node as a call answered it.
func (a *Allocator) take(o *corev1.Node) {
	if kept, err := trim(o); err == nil {
		a.seen(kept.(*corev1.Node))
	}
}

// patch changes a Node and takes over what became of it. A Node that is not what
// it was meant to be is read anew, which is no error.
func (a *Allocator) patch(ctx context.Context, name string, uid types.UID, metadata, spec map[string]any) error {
	change := map[string]any{"metadata": metadata}
	metadata["uid"] = uid
	if spec != nil {
		change["spec"] = spec
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	stored := &corev1.Node{}
	err = a.client.core.Patch(types.MergePatchType).Resource("nodes").Name(name).Timeout(callTimeout).Body(body).Do(ctx).Into(stored)
	switch {
	case err == nil:
		a.take(stored)
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		if failure := a.reread(ctx, name); failure != nil || !apierrors.IsInvalid(err) || !a.wants(uid) {
			return failure
		}
	}
	return fmt.Errorf("node %s: %w", name, err)
}

// wants is true while a Node is there and has no podCIDR.
func (a *Allocator) wants(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[uid]
	return n != nil && !n.settled
}

// reread looks at a Node whose write was refused: it may have changed, have
// podCIDRs by now, or be gone, and then another may have its name.
func (a *Allocator) reread(ctx context.Context, name string) error {
	list := &corev1.NodeList{}
	err := a.client.core.Get().Resource("nodes").Timeout(callTimeout).
		Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()).Do(ctx).Into(list)
	if err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	alive := map[types.UID]bool{}
	for i := range list.Items {
		alive[list.Items[i].UID] = true
		a.take(&list.Items[i])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, n := range a.nodes {
		if n.name == name && !alive[uid] {
			a.drop(uid)
		}
	}
	return nil
}

// pass gives a podCIDR to every Node that can have one, and says when to look
// again; 0 for when there is news.
func (a *Allocator) pass(ctx context.Context) (again time.Duration, err error) {
	a.mu.Lock()
	waiting := a.waiting()
	if len(waiting) > 0 && a.first.IsZero() {
		a.first = time.Now()
	}
	obstacle, look := a.obstacle(), lookOut-time.Since(a.first)
	a.mu.Unlock()
	switch {
	case obstacle != "":
		a.tellStopped(obstacle, waiting)
		return 0, nil
	case len(waiting) == 0:
		return 0, nil
	case look > 0:
		return look, nil
	}
	return 0, parallel(a.leads, a.assignments(ctx, waiting))
}

// assignments reserves podCIDRs, the oldest Nodes' first, and returns the writes
// that are still to be made.
func (a *Allocator) assignments(ctx context.Context, waiting map[types.UID]*candidate) (jobs []func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uid := range slices.SortedFunc(maps.Keys(waiting), func(x, y types.UID) int {
		return cmp.Or(waiting[x].created.Compare(waiting[y].created), cmp.Compare(waiting[x].name, waiting[y].name))
	}) {
		n := waiting[uid]
		if n.settled || a.nodes[uid] != n {
			continue // since the pass began
		}
		reserved, err := a.pool.Reserve(string(uid))
		if err != nil {
			a.tell(n, routes.PodCIDRsExhausted, fmt.Sprintf(
				"node %s gets no podCIDR, since %v: delete Nodes that are gone, give the controller a further --cluster-cidr, or make the podCIDRs of new nodes smaller", n.name, err))
			continue
		}
		name, version, given := n.name, n.version, spell(reserved)
		jobs = append(jobs, func() error {
			return a.patch(ctx, name, uid,
				map[string]any{"resourceVersion": version, "annotations": map[string]string{allocatedAnnotation: given}},
				map[string]any{"podCIDR": reserved[0], "podCIDRs": reserved})
		})
	}
	return jobs
}

// spell writes podCIDRs into an annotation.
func spell(podCIDRs []netip.Prefix) string {
	words := make([]string, len(podCIDRs))
	for i, p := range podCIDRs {
		words[i] = p.String()
	}
	return strings.Join(words, ",")
}

// tell makes one Event of what a Node meets.
func (a *Allocator) tell(n *candidate, kind routes.EventKind, message string) {
	if n.told != kind {
		n.told = kind
		a.observe(routes.Event{Kind: kind, Node: n.name, Message: message})
	}
}

// tellStopped says once that there is another allocator, and to each Node that
// waits in vain.
func (a *Allocator) tellStopped(because string, waiting map[types.UID]*candidate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	message := fmt.Sprintf("no podCIDR is allocated, since something else allocates them too: %s; "+
		"take --allocate-node-cidrs away from kube-controller-manager, or from this controller, and start it again", because)
	if a.told != because {
		a.told = because
		a.observe(routes.Event{Kind: routes.AllocationStopped, Message: message})
	}
	for _, n := range waiting {
		a.tell(n, routes.AllocationStopped, message)
	}
}
