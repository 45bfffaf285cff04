package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
)

// An API holds what route controllers read and write on an API server: Nodes
// and VPCRoutes, with versions, generations, conflicts and a history to watch.
// Admission and validation are left out.
type API struct {
	mu      sync.Mutex
	version int
	nodes   *store
	routes  *store
	changed chan struct{} // closed and replaced by every change
	// available are the Nodes whose network is said to be there.
	available map[string]bool
}

// A store is one resource. Its objects are never changed in place.
type store struct {
	resource schema.GroupVersionResource
	empty    func() runtime.Object // list
	objects  map[string]runtime.Object
	history  []event
}

type event struct {
	version int
	kind    watch.EventType
	object  runtime.Object
}

// NewAPI returns an API server that knows some Nodes.
func NewAPI(nodes ...*corev1.Node) *API {
	a := &API{
		changed:   make(chan struct{}),
		available: map[string]bool{},
		nodes: &store{
			resource: corev1.SchemeGroupVersion.WithResource("nodes"), objects: map[string]runtime.Object{},
			empty: func() runtime.Object { return &corev1.NodeList{} },
		},
		routes: &store{
			resource: v1alpha1.GroupVersion.WithResource("vpcroutes"), objects: map[string]runtime.Object{},
			empty: func() runtime.Object { return &v1alpha1.VPCRouteList{} },
		},
	}
	for _, n := range nodes {
		a.PutNode(n)
	}
	return a
}

// PutNode makes a Node or changes it.
func (a *API) PutNode(n *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(a.nodes, n.DeepCopy())
}

// Available is how many Nodes are said to have their network, and a channel
// that is closed when something changes.
func (a *API) Available() (int, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.available), a.changed
}

// put stores an object as a new version. The caller holds the lock.
func (a *API) put(s *store, o runtime.Object) {
	m := accessor(o)
	_, there := s.objects[m.GetName()]
	kind := watch.Added
	if there {
		kind = watch.Modified
	}
	a.happened(s, kind, o)
	s.objects[m.GetName()] = o
	if n, ok := o.(*corev1.Node); ok {
		if networked(n) {
			a.available[n.Name] = true
		} else {
			delete(a.available, n.Name)
		}
	}
}

func (a *API) happened(s *store, kind watch.EventType, o runtime.Object) {
	a.version++
	accessor(o).SetResourceVersion(strconv.Itoa(a.version))
	s.history = append(s.history, event{a.version, kind, o})
	close(a.changed)
	a.changed = make(chan struct{})
}

func networked(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse
	})
}

// list returns a list of all objects, or of the one with a name. With a limit it
// is a page, which begins after an object's name.
func (a *API) list(s *store, name string, limit int, after string) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var objects []runtime.Object
	next := ""
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if key <= after || name != "" && name != key {
			continue
		}
		if limit > 0 && len(objects) == limit {
			next = accessor(objects[limit-1]).GetName()
			break
		}
		objects = append(objects, s.objects[key])
	}
	list := s.empty()
	if err := meta.SetList(list, objects); err != nil {
		return nil, err
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	l.SetResourceVersion(strconv.Itoa(a.version))
	l.SetContinue(next)
	return list, nil
}

// since returns what happened to a resource after a version, up to which
// version that is, and a channel that is closed when more happens.
func (a *API) since(s *store, version int) ([]event, int, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.history, version+1, func(e event, v int) int { return e.version - v })
	return slices.Clone(s.history[i:]), a.version, a.changed
}

// create stores a new VPCRoute.
func (a *API) create(o *v1alpha1.VPCRoute) (*v1alpha1.VPCRoute, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.routes.objects[o.Name]; there {
		return nil, apierrors.NewAlreadyExists(a.routes.resource.GroupResource(), o.Name)
	}
	o.UID, o.Generation, o.Status = types.UID(fmt.Sprintf("8d1f0000-0000-4000-8000-%012d", a.version)), 1, v1alpha1.VPCRouteStatus{}
	o.CreationTimestamp = metav1.Now()
	o.ManagedFields = managed(o, "route-controller")
	a.put(a.routes, o)
	return o, nil
}

// update changes the spec of a VPCRoute or, with status, its status.
func (a *API) update(o *v1alpha1.VPCRoute, status bool) (*v1alpha1.VPCRoute, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, there := a.routes.objects[o.Name]
	if !there {
		return nil, apierrors.NewNotFound(a.routes.resource.GroupResource(), o.Name)
	}
	before := stored.(*v1alpha1.VPCRoute)
	if o.ResourceVersion != before.ResourceVersion {
		return nil, apierrors.NewConflict(a.routes.resource.GroupResource(), o.Name, fmt.Errorf("it is at %s", before.ResourceVersion))
	}
	after := before.DeepCopy()
	if status {
		after.Status = o.Status
	} else {
		after.Spec = o.Spec
		after.Generation++
	}
	after.ManagedFields = managed(after, "route-controller", "route-controller")
	a.put(a.routes, after)
	return after, nil
}

// remove deletes a VPCRoute.
func (a *API) remove(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, there := a.routes.objects[name]
	if !there {
		return apierrors.NewNotFound(a.routes.resource.GroupResource(), name)
	}
	a.happened(a.routes, watch.Deleted, stored.DeepCopyObject())
	delete(a.routes.objects, name)
	return nil
}

// patchNode merges a strategic patch into a Node's status.
func (a *API) patchNode(name string, patch []byte) (*corev1.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, there := a.nodes.objects[name]
	if !there {
		return nil, apierrors.NewNotFound(a.nodes.resource.GroupResource(), name)
	}
	// The images are heavy, and no patch here is about them.
	light := stored.(*corev1.Node).DeepCopy()
	whole := light.Status.Images
	light.Status.Images = nil
	before, err := json.Marshal(light)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, err
	}
	after.Status.Images = whole
	a.put(a.nodes, after)
	return after, nil
}

func accessor(o runtime.Object) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err) // only API objects are stored
	}
	return m
}
