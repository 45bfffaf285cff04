package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// tries is how often a write is repeated that met a newer object.
	tries = 5
	// writers is how many objects are written at once.
	writers = 16
)

// Routes are the VPCRoutes of the cluster: the ledger, and what people see.
type Routes struct {
	client *Client

	mu    sync.Mutex
	known map[string]*v1alpha1.VPCRoute // as last read or written, by name
	// locks let one write of an object happen at a time. They are channels, since
	// they are held during calls: a testing/synctest bubble takes only these for
	// waiting.
	locks map[string]chan struct{}
	// kept are objects that belong to what the engine has said last: one that
	// somebody deletes is made again.
	kept map[string]bool
}

// NewRoutes makes the ledger of a cluster.
func NewRoutes(c *Client) *Routes {
	return &Routes{client: c, known: map[string]*v1alpha1.VPCRoute{}, locks: map[string]chan struct{}{}, kept: map[string]bool{}}
}

// Load returns the entries of every VPCRoute that proves something.
func (r *Routes) Load(ctx context.Context) ([]routes.Entry, error) {
	list := &v1alpha1.VPCRouteList{}
	if err := r.client.vpcroute.Get().Resource("vpcroutes").Timeout(callTimeout).Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("list VPCRoutes: %w", err)
	}
	var entries []routes.Entry
	for i := range list.Items {
		o := &list.Items[i]
		r.remember(o)
		dest, err := netip.ParsePrefix(o.Spec.Destination)
		if err != nil || o.Spec.NextHop == "" && len(o.Spec.PreviousNextHops) == 0 {
			continue // it says why there is no route, and proves none
		}
		e := routes.Entry{Node: o.Spec.NodeName, UID: string(o.Spec.NodeUID), Table: o.Spec.Table, Destination: dest, NextHop: vpc.NextHop(o.Spec.NextHop)}
		for _, p := range o.Spec.PreviousNextHops {
			e.Previous = append(e.Previous, vpc.NextHop(p))
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Record writes the spec of one VPCRoute for each entry.
func (r *Routes) Record(ctx context.Context, entries []routes.Entry) []error {
	return each(entries, func(e routes.Entry) error {
		name := v1alpha1.Name(e.Node, e.Table, e.Destination.String())
		spec := v1alpha1.VPCRouteSpec{NodeName: e.Node, NodeUID: types.UID(e.UID), Destination: e.Destination.String(), Table: e.Table, NextHop: string(e.NextHop)}
		for _, p := range e.Previous {
			spec.PreviousNextHops = append(spec.PreviousNextHops, string(p))
		}
		r.keep(name, true)
		defer r.lock(name)()
		_, err := r.write(ctx, name, spec)
		return err
	})
}

// Forget deletes the VPCRoute of each entry.
func (r *Routes) Forget(ctx context.Context, entries []routes.Entry) []error {
	return each(entries, func(e routes.Entry) error {
		return r.remove(ctx, v1alpha1.Name(e.Node, e.Table, e.Destination.String()))
	})
}

// each does the same for many entries, several at once.
func each(entries []routes.Entry, act func(routes.Entry) error) []error {
	errs := make([]error, len(entries))
	var wait sync.WaitGroup
	slots := make(chan struct{}, writers)
	for i, e := range entries {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			errs[i] = act(e)
		})
	}
	wait.Wait()
	return errs
}

// lock lets one goroutine at a time write an object.
func (r *Routes) lock(name string) (unlock func()) {
	r.mu.Lock()
	l := r.locks[name]
	if l == nil {
		l = make(chan struct{}, 1)
		r.locks[name] = l
	}
	r.mu.Unlock()
	l <- struct{}{}
	return func() { <-l }
}

func (r *Routes) remember(o *v1alpha1.VPCRoute) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[o.Name] = o
}

func (r *Routes) forgetObject(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}

func (r *Routes) keep(name string, kept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept {
		r.kept[name] = true
	} else {
		delete(r.kept, name)
	}
}

func (r *Routes) object(name string) *v1alpha1.VPCRoute {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.known[name]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

// write creates an object or brings its spec to the given one.
func (r *Routes) write(ctx context.Context, name string, spec v1alpha1.VPCRouteSpec) (*v1alpha1.VPCRoute, error) {
	var err error
	for range tries {
		o := r.object(name)
		stored := &v1alpha1.VPCRoute{}
		switch {
		case o == nil:
			err = r.client.vpcroute.Post().Resource("vpcroutes").Timeout(callTimeout).
				Body(&v1alpha1.VPCRoute{TypeMeta: typeMeta, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}).Do(ctx).Into(stored)
		case sameSpec(o.Spec, spec):
			return o, nil
		default:
			o.Spec, o.TypeMeta = spec, typeMeta
			err = r.client.vpcroute.Put().Resource("vpcroutes").Name(name).Timeout(callTimeout).Body(o).Do(ctx).Into(stored)
		}
		if err == nil {
			r.remember(stored)
			return stored, nil
		}
		if err := r.refresh(ctx, name, err); err != nil {
			return nil, fmt.Errorf("record VPCRoute %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("record VPCRoute %s: %w", name, err)
}

var typeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VPCRoute"}

func sameSpec(a, b v1alpha1.VPCRouteSpec) bool {
	return a.NodeName == b.NodeName && a.NodeUID == b.NodeUID && a.Destination == b.Destination && a.Table == b.Table &&
		a.NextHop == b.NextHop && slices.Equal(a.PreviousNextHops, b.PreviousNextHops)
}

// refresh reads an object anew when a write failed because it is not what it
// was; any other failure is returned.
func (r *Routes) refresh(ctx context.Context, name string, failure error) error {
	if !apierrors.IsConflict(failure) && !apierrors.IsNotFound(failure) && !apierrors.IsAlreadyExists(failure) {
		return failure
	}
	list := &v1alpha1.VPCRouteList{}
	err := r.client.vpcroute.Get().Resource("vpcroutes").Timeout(callTimeout).
		Param("fieldSelector", fields.OneTermEqualSelector("metadata.name", name).String()).Do(ctx).Into(list)
	if err != nil {
		return errors.Join(failure, err)
	}
	r.forgetObject(name)
	for i := range list.Items {
		r.remember(&list.Items[i])
	}
	return nil
}

func (r *Routes) remove(ctx context.Context, name string) error {
	r.keep(name, false)
	defer r.lock(name)()
	err := r.client.vpcroute.Delete().Resource("vpcroutes").Name(name).Timeout(callTimeout).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("forget VPCRoute %s: %w", name, err)
	}
	r.forgetObject(name)
	return nil
}

// Show brings the status of a route's VPCRoute to what is known, and makes the
// object where there is none. A route that is gone takes its object along.
func (r *Routes) Show(ctx context.Context, s routes.RouteStatus) error {
	dest := ""
	if s.Destination.IsValid() {
		dest = s.Destination.String()
	}
	name := v1alpha1.Name(s.Node, s.Table, dest)
	if s.Node == "" || dest != "" && s.Table == "" || s.Reason == routes.NoPodCIDR {
		return nil // nothing that an object could be about
	}
	if s.State == routes.Gone {
		return r.remove(ctx, name)
	}
	r.keep(name, true)
	defer r.lock(name)()
	for range tries {
		o := r.object(name)
		if o == nil {
			var err error
			if o, err = r.write(ctx, name, v1alpha1.VPCRouteSpec{NodeName: s.Node, NodeUID: types.UID(s.UID), Destination: dest, Table: s.Table}); err != nil {
				return err
			}
			o = o.DeepCopy()
		}
		before := o.DeepCopy()
		setStatus(o, s)
		if sameStatus(before.Status, o.Status) {
			return nil
		}
		stored := &v1alpha1.VPCRoute{}
		o.TypeMeta = typeMeta
		err := r.client.vpcroute.Put().Resource("vpcroutes").Name(name).SubResource("status").Timeout(callTimeout).Body(o).Do(ctx).Into(stored)
		if err == nil {
			r.remember(stored)
			return nil
		}
		if err := r.refresh(ctx, name, err); err != nil {
			return fmt.Errorf("status of VPCRoute %s: %w", name, err)
		}
	}
	return fmt.Errorf("status of VPCRoute %s: it changes too fast", name)
}

// setStatus writes a status into an object.
func setStatus(o *v1alpha1.VPCRoute, s routes.RouteStatus) {
	st := &o.Status
	st.ObservedGeneration = o.Generation
	st.State, st.Reason, st.Message = v1alpha1.State(s.State), string(s.Reason), s.Message
	st.NextHop, st.Table = string(s.Actual), ""
	if s.Actual != "" {
		st.Table = s.Table
	}
	for _, t := range []struct {
		to *(*metav1.Time)
		at time.Time
	}{{&st.LastChangeTime, s.Changed}, {&st.LastProofTime, s.Proved}} {
		if !t.at.IsZero() {
			at := metav1.NewTime(t.at.Truncate(time.Second))
			*t.to = &at
		}
	}
	programmed := s.State == routes.Programmed || s.State == routes.Verified || s.State == routes.Unreachable
	setCondition(o, v1alpha1.ConditionProgrammed, programmed, s)
	setCondition(o, v1alpha1.ConditionVerified, s.State == routes.Verified, s)
}

func setCondition(o *v1alpha1.VPCRoute, kind string, holds bool, s routes.RouteStatus) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	c := metav1.Condition{Type: kind, Status: status, ObservedGeneration: o.Generation, Reason: string(s.Reason), Message: s.Message, LastTransitionTime: metav1.Now()}
	i := slices.IndexFunc(o.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		o.Status.Conditions = append(o.Status.Conditions, c)
		return
	}
	if o.Status.Conditions[i].Status == status {
		c.LastTransitionTime = o.Status.Conditions[i].LastTransitionTime
	}
	o.Status.Conditions[i] = c
}

// sameStatus is true when a write would tell nobody anything: a proof that was
// repeated with the same outcome is none.
func sameStatus(a, b v1alpha1.VPCRouteStatus) bool {
	return a.State == b.State && a.Reason == b.Reason && a.Message == b.Message && a.NextHop == b.NextHop && a.Table == b.Table &&
		a.ObservedGeneration == b.ObservedGeneration && len(a.Conditions) == len(b.Conditions) && a.LastChangeTime.Equal(b.LastChangeTime)
}

// Watch follows VPCRoutes until ctx ends and has those made again that somebody
// deleted: their routes are still there, and the proof must be.
func (r *Routes) Watch(ctx context.Context, failed func(error)) {
	watch := cache.NewListWatchFromClient(r.client.vpcroute, "vpcroutes", metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(watch, &v1alpha1.VPCRoute{}, 0, nil)
	if err := informer.SetTransform(nameOnly); err != nil {
		failed(err)
		return
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if object, ok := o.(*v1alpha1.VPCRoute); ok {
				if err := r.restore(ctx, object); err != nil {
					failed(err)
				}
			}
		},
	})
	if err != nil {
		failed(err)
		return
	}
	informer.RunWithContext(ctx)
}

// nameOnly drops everything of a VPCRoute that tells nothing of its deletion.
func nameOnly(o any) (any, error) {
	if object, ok := o.(*v1alpha1.VPCRoute); ok {
		return &v1alpha1.VPCRoute{ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion}}, nil
	}
	return o, nil
}

// restore makes a deleted object again if it is still wanted.
func (r *Routes) restore(ctx context.Context, o *v1alpha1.VPCRoute) error {
	// Decided under the object's lock: its own deletion may be what is told of
	// here, and must be over before it can be recognized.
	defer r.lock(o.Name)()
	r.mu.Lock()
	kept := r.kept[o.Name]
	last := r.known[o.Name]
	r.mu.Unlock()
	if !kept || last == nil || last.UID != o.UID {
		return nil
	}
	r.forgetObject(o.Name)
	made, err := r.write(ctx, o.Name, last.Spec)
	if err != nil {
		return err
	}
	made = made.DeepCopy()
	made.Status, made.TypeMeta = last.Status, typeMeta
	stored := &v1alpha1.VPCRoute{}
	if err := r.client.vpcroute.Put().Resource("vpcroutes").Name(o.Name).SubResource("status").Timeout(callTimeout).Body(made).Do(ctx).Into(stored); err != nil {
		return err
	}
	r.remember(stored)
	return nil
}
