package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

// retryReport is how long a report that failed waits for its next try.
const retryReport = 5 * time.Second

// A Reporter is an Observer that shows on the API server what has become of
// nodes and routes: one write for each real change, the latest state only.
type Reporter struct {
	client *Client
	routes *Routes
	leads  func() error
	// failed is told what could not be written; it is tried again.
	failed func(error)

	mu         sync.Mutex
	wake       chan struct{}
	nodes      map[string]routes.NodeStatus // last reported by the engine
	conditions map[string]*corev1.NodeCondition
	told       map[string]routes.Reason // of the last Event of each node
	dirtyNodes map[string]bool
	dirty      map[routeKey]routes.RouteStatus
	events     []*eventsv1.Event
	uids       map[string]string
}

type routeKey struct{ node, table, destination string }

// NewReporter makes a Reporter that writes only while leads returns nil.
func NewReporter(c *Client, r *Routes, leads func() error, failed func(error)) *Reporter {
	return &Reporter{
		client: c, routes: r, leads: leads, failed: failed, wake: make(chan struct{}, 1),
		nodes: map[string]routes.NodeStatus{}, conditions: map[string]*corev1.NodeCondition{}, told: map[string]routes.Reason{},
		dirtyNodes: map[string]bool{}, dirty: map[routeKey]routes.RouteStatus{}, uids: map[string]string{},
	}
}

func (r *Reporter) locked(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Route takes a route's state.
func (r *Reporter) Route(s routes.RouteStatus) {
	key := routeKey{s.Node, s.Table, s.Destination.String()}
	r.locked(func() { r.dirty[key] = s })
}

// Node takes a node's state.
func (r *Reporter) Node(s routes.NodeStatus) {
	r.locked(func() {
		if s.Gone {
			delete(r.nodes, s.Node)
			delete(r.told, s.Node)
			delete(r.dirtyNodes, s.Node)
			return
		}
		r.nodes[s.Node], r.uids[s.Node] = s, s.UID
		r.dirtyNodes[s.Node] = true
		r.tellNode(s)
	})
}

// tellNode makes one Event of a node's new trouble, and one of its end.
func (r *Reporter) tellNode(s routes.NodeStatus) {
	last, had := r.told[s.Node]
	switch {
	case s.Verdict == routes.Unavailable && s.Reason != last && lasting(s.Reason):
		r.told[s.Node] = s.Reason
		r.event(s.Node, s.UID, corev1.EventTypeWarning, string(s.Reason), s.Message)
	case s.Verdict == routes.Available && had && last != s.Reason:
		r.told[s.Node] = s.Reason
		r.event(s.Node, s.UID, corev1.EventTypeNormal, string(s.Reason), s.Message)
	}
}

// lasting is true for reasons that are not a stage on the way to a route.
func lasting(reason routes.Reason) bool {
	switch reason {
	case routes.ResolvingNextHop, routes.CreatingRoute, routes.AwaitingProof, routes.NoPodCIDR:
		return false
	}
	return true
}

// Event takes what else happened; what concerns a node becomes an Event of it.
func (r *Reporter) Event(e routes.Event) {
	if e.Node == "" {
		return
	}
	kind := corev1.EventTypeWarning
	switch e.Kind {
	case routes.ConflictSolved, routes.ProofRegained, routes.RouteAdopted:
		kind = corev1.EventTypeNormal
	}
	r.locked(func() { r.event(e.Node, r.uids[e.Node], kind, string(e.Kind), e.Message) })
}

// maxNote is the longest note of an Event in bytes.
const maxNote = 1024

func (r *Reporter) event(node, uid, kind, reason, note string) {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	r.events = append(r.events, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "vpcroute-" + string(uuid.NewUUID()), Namespace: metav1.NamespaceDefault},
		EventTime:           metav1.NowMicro(),
		ReportingController: "vpcroute.io/route-controller",
		ReportingInstance:   "route-controller",
		Action:              "Route",
		Reason:              reason,
		Type:                kind,
		Note:                note,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(uid)},
	})
}

// Seen takes a node's condition as the API server has it; nil when it has none.
func (r *Reporter) Seen(node string, c *corev1.NodeCondition) {
	r.locked(func() {
		r.conditions[node] = c
		r.dirtyNodes[node] = true
	})
}

// Lost forgets a Node that is gone.
func (r *Reporter) Lost(node string) {
	r.locked(func() {
		delete(r.conditions, node)
		delete(r.uids, node)
	})
}

// Run writes until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		if err := r.write(ctx); err != nil && ctx.Err() == nil {
			r.failed(err)
			time.AfterFunc(retryReport, func() { r.locked(func() {}) })
		}
	}
}

// write writes everything that is due; what fails stays due.
func (r *Reporter) write(ctx context.Context) error {
	r.mu.Lock()
	states, nodes, events := r.dirty, r.dirtyNodes, r.events
	r.dirty, r.dirtyNodes, r.events = map[routeKey]routes.RouteStatus{}, map[string]bool{}, nil
	r.mu.Unlock()
	var jobs []func() error
	for node := range nodes {
		jobs = append(jobs, func() error { return r.redo(r.writeNode(ctx, node), func() { r.dirtyNodes[node] = true }) })
	}
	for key, s := range states {
		jobs = append(jobs, func() error {
			return r.redo(r.routes.Show(ctx, s), func() {
				if _, newer := r.dirty[key]; !newer {
					r.dirty[key] = s
				}
			})
		})
	}
	for _, e := range events {
		jobs = append(jobs, func() error {
			err := r.writeEvent(ctx, e)
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
				return err // and will be
			}
			return r.redo(err, func() { r.events = append(r.events, e) })
		})
	}
	return parallel(r.leads, jobs)
}

// writeEvent makes an Event. One that is there was made by an earlier try.
func (r *Reporter) writeEvent(ctx context.Context, e *eventsv1.Event) error {
	err := r.client.events.Post().Namespace(e.Namespace).Resource("events").Timeout(callTimeout).Body(e).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("event %s of node %s: %w", e.Reason, e.Regarding.Name, err)
	}
	return nil
}

// redo has what failed done again.
func (r *Reporter) redo(err error, again func()) error {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		again()
	}
	return err
}

// parallel does jobs, several at once and only while leads returns nil, and
// returns one of their failures.
func parallel(leads func() error, jobs []func() error) error {
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failure error
	slots := make(chan struct{}, writers)
	for _, job := range jobs {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			err := leads()
			if err == nil {
				err = job()
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failure = err
			}
		})
	}
	wait.Wait()
	return failure
}

// writeNode brings a node's condition to what is known, if it is not that.
func (r *Reporter) writeNode(ctx context.Context, node string) error {
	r.mu.Lock()
	status, known := r.nodes[node]
	has, listed := r.conditions[node]
	r.mu.Unlock()
	if !known || !listed || status.Verdict == routes.Untouched || status.Verdict == routes.Undecided && has != nil {
		return nil
	}
	want := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: string(status.Reason), Message: status.Message}
	if status.Verdict == routes.Available {
		want.Status = corev1.ConditionFalse
	}
	if sameCondition(has, &want) {
		return nil
	}
	return r.patchCondition(ctx, node, has, want)
}

func (r *Reporter) patchCondition(ctx context.Context, node string, has *corev1.NodeCondition, want corev1.NodeCondition) error {
	now := metav1.Now()
	want.LastHeartbeatTime, want.LastTransitionTime = now, now
	if has != nil && has.Status == want.Status {
		want.LastTransitionTime = has.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}})
	if err != nil {
		return err
	}
	err = r.client.core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(node).SubResource("status").Timeout(callTimeout).Body(patch).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("condition of node %s: %w", node, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conditions[node] = &want
	return nil
}

// reasonRemoved is the reason of a condition whose route is no longer managed.
const reasonRemoved = "RouteControllerRemoved"

// ClearConditions makes false every condition that this controller left true,
// so that it blocks no node after the controller is gone.
func (c *Client) ClearConditions(ctx context.Context) error {
	list, err := c.listNodes(ctx)
	if err != nil {
		return err
	}
	r := NewReporter(c, nil, nil, nil)
	var errs []error
	for i := range list.Items {
		n := &list.Items[i]
		has := conditionOf(n)
		if has == nil || has.Status != corev1.ConditionTrue || !routes.Reason(has.Reason).Known() {
			continue
		}
		errs = append(errs, r.patchCondition(ctx, n.Name, has, corev1.NodeCondition{
			Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse,
			Reason: reasonRemoved, Message: "the route controller was removed and says nothing about this node any more",
		}))
	}
	return errors.Join(errs...)
}
