package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// An apiServer is as much of an API server as the package asks: objects with
// UIDs, resource versions that lock, and podCIDRs that are written once. Clients
// reach it without a network, so it works on virtual time.
type apiServer struct {
	mu      sync.Mutex
	objects map[string]object // by path
	serial  int
	writes  []string // method and path of each that was made

	// fault, when set, decides about a request: whether it is carried out, and
	// the error in place of its answer, for requests and answers that get lost.
	fault func(r *http.Request, body []byte) (carryOut bool, err error)
}

// An object is one in JSON.
type object = map[string]any

func newAPIServer() *apiServer { return &apiServer{objects: map[string]object{}} }

func (s *apiServer) client(t testing.TB) *Client {
	t.Helper()
	c, err := NewClient(&rest.Config{Host: "https://cluster", Transport: s, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RoundTrip answers a request.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	carryOut, fault := true, error(nil)
	if s.fault != nil {
		carryOut, fault = s.fault(r, body)
	}
	var answer any
	var err error
	if carryOut {
		answer, err = s.do(r, body)
	}
	if fault != nil {
		return nil, fault
	}
	code := http.StatusOK
	if status := apierrors.APIStatus(nil); err != nil {
		status = err.(apierrors.APIStatus)
		s := status.Status()
		answer, code = &s, int(s.Code)
	}
	text, _ := json.Marshal(answer)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, nil
}

// do carries a request out.
func (s *apiServer) do(r *http.Request, body []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	var sent object
	_ = json.Unmarshal(body, &sent)
	switch r.Method {
	case http.MethodGet:
		return s.get(path, r.URL.Query().Get("fieldSelector"))
	case http.MethodPost:
		return s.create(path, sent)
	}
	path = strings.TrimSuffix(path, "/status")
	is := s.objects[path]
	if is == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	s.writes = append(s.writes, r.Method+" "+r.URL.Path)
	if r.Method == http.MethodDelete {
		delete(s.objects, path)
		return object{"kind": "Status", "apiVersion": "v1", "status": "Success"}, nil
	}
	wanted := sent
	if r.Method == http.MethodPatch {
		wanted = merge(clone(is), sent, strings.Contains(r.Header.Get("Content-Type"), "strategic")).(object)
	}
	return s.update(path, is, wanted)
}

// get answers with one object, or with all below a path.
func (s *apiServer) get(path, selector string) (any, error) {
	if o := s.objects[path]; o != nil {
		return o, nil
	}
	return s.list(path, selector), nil
}

func (s *apiServer) list(path, selector string) object {
	items := []object{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		name := p[strings.LastIndex(p, "/")+1:]
		if strings.HasPrefix(p, path+"/") && (selector == "" || selector == "metadata.name="+name) {
			items = append(items, s.objects[p])
		}
	}
	return object{"metadata": object{"resourceVersion": fmt.Sprint(s.serial)}, "items": items}
}

func (s *apiServer) create(path string, o object) (any, error) {
	meta := metadata(o)
	s.serial++
	if prefix, ok := meta["generateName"].(string); ok {
		meta["name"] = prefix + fmt.Sprint(s.serial)
	}
	path += "/" + meta["name"].(string)
	if s.objects[path] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{}, path)
	}
	meta["uid"] = fmt.Sprintf("uid-%d", s.serial)
	meta["resourceVersion"] = fmt.Sprint(s.serial)
	s.objects[path] = o
	s.writes = append(s.writes, "POST "+path)
	return o, nil
}

// update stores an object, if it may become that.
func (s *apiServer) update(path string, is, wanted object) (any, error) {
	was, meta := metadata(is), metadata(wanted)
	if version, named := meta["resourceVersion"]; named && version != "" && version != was["resourceVersion"] {
		return nil, apierrors.NewConflict(schema.GroupResource{}, path, fmt.Errorf("version %s is not %s", version, was["resourceVersion"]))
	}
	if meta["uid"] != was["uid"] {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, path, nil)
	}
	if had := podCIDRs(is); len(had) > 0 && !slices.Equal(had, podCIDRs(wanted)) {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, path, nil)
	}
	meta["resourceVersion"] = was["resourceVersion"]
	if before, _ := json.Marshal(is); !bytes.Equal(before, encode(wanted)) {
		s.serial++
		meta["resourceVersion"] = fmt.Sprint(s.serial)
	}
	s.objects[path] = wanted
	return wanted, nil
}

func encode(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}

func clone(o object) object {
	var copied object
	_ = json.Unmarshal(encode(o), &copied)
	return copied
}

func metadata(o object) object {
	if o["metadata"] == nil {
		o["metadata"] = object{}
	}
	return o["metadata"].(object)
}

func podCIDRs(o object) (all []string) {
	spec, _ := o["spec"].(object)
	list, _ := spec["podCIDRs"].([]any)
	for _, p := range list {
		all = append(all, p.(string))
	}
	return all
}

// merge is a JSON merge patch (RFC 7396); a strategic one merges conditions by
// their type.
func merge(into, patch any, strategic bool) any {
	fields, ok := patch.(object)
	if !ok {
		return patch
	}
	merged, ok := into.(object)
	if !ok {
		merged = object{}
	}
	for key, value := range fields {
		switch {
		case value == nil:
			delete(merged, key)
		case strategic && key == "conditions":
			merged[key] = mergeConditions(merged[key], value)
		default:
			merged[key] = merge(merged[key], value, strategic)
		}
	}
	return merged
}

func mergeConditions(into, patch any) any {
	list, _ := into.([]any)
	for _, c := range patch.([]any) {
		i := slices.IndexFunc(list, func(o any) bool { return o.(object)["type"] == c.(object)["type"] })
		if i < 0 {
			list = append(list, c)
			continue
		}
		list[i] = c
	}
	return list
}

const nodesPath = "/api/v1/nodes"

// addNode creates a Node.
func (s *apiServer) addNode(name string, podCIDRs ...string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := object{"metadata": object{"name": name}}
	if len(podCIDRs) > 0 {
		o["spec"] = object{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs}
	}
	if _, err := s.create(nodesPath, clone(o)); err != nil {
		panic(err)
	}
	return read[corev1.Node](s.objects[nodesPath+"/"+name])
}

// drop deletes an object.
func (s *apiServer) drop(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, path)
}

func read[T any](o object) *T {
	var typed T
	if err := json.Unmarshal(encode(o), &typed); err != nil {
		panic(err)
	}
	return &typed
}

// all returns the objects below a path.
func all[T any](s *apiServer, path string) (found []*T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list(path, "")["items"].([]object) {
		found = append(found, read[T](o))
	}
	return found
}

func (s *apiServer) nodes() []*corev1.Node { return all[corev1.Node](s, nodesPath) }

func (s *apiServer) events() []*eventsv1.Event {
	return all[eventsv1.Event](s, "/apis/events.k8s.io/v1/namespaces/default/events")
}

// written returns what was written since it was asked last.
func (s *apiServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.writes = nil }()
	return s.writes
}
