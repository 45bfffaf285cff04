package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
)

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// Handler serves the API as an API server does: JSON and protobuf, watches, and
// lists as streams of a watch. It takes Events and forgets them. A
// page shows what there is when it is asked for. There is no authentication.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) { a.read(w, r, a.nodes) })
	mux.HandleFunc("PATCH /api/v1/nodes/{name}/status", func(w http.ResponseWriter, r *http.Request) {
		patch, err := io.ReadAll(r.Body)
		if err != nil {
			answer(w, r, nil, err)
			return
		}
		n, err := a.patchNode(r.PathValue("name"), patch)
		answer(w, r, n, err)
	})
	const vpcroutes = "/apis/vpcroute.io/v1alpha1/vpcroutes"
	mux.HandleFunc("GET "+vpcroutes, func(w http.ResponseWriter, r *http.Request) { a.read(w, r, a.routes) })
	mux.HandleFunc("POST "+vpcroutes, written(a.create))
	mux.HandleFunc("PUT "+vpcroutes+"/{name}", written(func(o *v1alpha1.VPCRoute) (*v1alpha1.VPCRoute, error) { return a.update(o, false) }))
	mux.HandleFunc("PUT "+vpcroutes+"/{name}/status", written(func(o *v1alpha1.VPCRoute) (*v1alpha1.VPCRoute, error) { return a.update(o, true) }))
	mux.HandleFunc("DELETE "+vpcroutes+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, &metav1.Status{Status: metav1.StatusSuccess}, a.remove(r.PathValue("name")))
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", echo)
	mux.HandleFunc("POST /apis/events.k8s.io/v1/namespaces/{namespace}/events", echo)
	return mux
}

// written is the handler of a write of a VPCRoute.
func written(write func(*v1alpha1.VPCRoute) (*v1alpha1.VPCRoute, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			answer(w, r, nil, err)
			return
		}
		o := &v1alpha1.VPCRoute{}
		if err := runtime.DecodeInto(codecs.UniversalDeserializer(), body, o); err != nil {
			answer(w, r, nil, apierrors.NewBadRequest(err.Error()))
			return
		}
		stored, err := write(o)
		answer(w, r, stored, err)
	}
}

// echo takes an object and forgets it.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, _ = io.Copy(w, r.Body) // who asked may have gone
}

// answer sends an object, or an error as an API server puts it.
func answer(w http.ResponseWriter, r *http.Request, o runtime.Object, err error) {
	code := http.StatusOK
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		var known apierrors.APIStatus
		if errors.As(err, &known) {
			status = known.Status()
		}
		o, code = &status, int(status.Code)
	}
	info := negotiate(r)
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	_ = codecs.EncoderForVersion(info.Serializer, versionOf(r)).Encode(own(o), w) // who asked may have gone
}

// versionOf is the group and version that a request is about.
func versionOf(r *http.Request) schema.GroupVersion {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return corev1.SchemeGroupVersion
	}
	return v1alpha1.GroupVersion
}

// negotiate is the first media type of those that a client takes and we speak.
// Custom resources have no protobuf.
func negotiate(r *http.Request) runtime.SerializerInfo {
	for accept := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, _, _ := strings.Cut(strings.TrimSpace(accept), ";")
		if kind == runtime.ContentTypeProtobuf && versionOf(r) == v1alpha1.GroupVersion {
			continue
		}
		if info, found := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), kind); found {
			return info
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return info
}

// read answers a list or a watch.
func (a *API) read(w http.ResponseWriter, r *http.Request, s *store) {
	q := r.URL.Query()
	if q.Get("watch") != "true" && q.Get("watch") != "1" {
		limit, _ := strconv.Atoi(q.Get("limit")) // without one, all
		list, err := a.list(s, strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name="), limit, q.Get("continue"))
		answer(w, r, list, err)
		return
	}
	stream := newStream(w, r)
	version, err := strconv.Atoi(q.Get("resourceVersion"))
	if q.Get("sendInitialEvents") == "true" {
		version, err = a.sendAll(stream, s)
	}
	if err != nil {
		return
	}
	_ = a.follow(r.Context(), stream, s, version) // who watched has gone
}

// sendAll sends every object as new, and then says that these were all.
func (a *API) sendAll(to *stream, s *store) (int, error) {
	a.mu.Lock()
	version := a.version
	objects := make([]runtime.Object, 0, len(s.objects))
	for _, o := range s.objects {
		objects = append(objects, o)
	}
	a.mu.Unlock()
	for _, o := range objects {
		if err := to.send(watch.Added, o); err != nil {
			return 0, err
		}
	}
	end := metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	var mark runtime.Object = &corev1.Node{ObjectMeta: end}
	if s == a.routes {
		mark = &v1alpha1.VPCRoute{ObjectMeta: end}
	}
	defer to.flush()
	return version, to.send(watch.Bookmark, mark)
}

// follow sends what happens from now on.
func (a *API) follow(ctx context.Context, to *stream, s *store, version int) error {
	for {
		events, reached, more := a.since(s, version)
		version = reached
		for _, e := range events {
			if err := to.send(e.kind, e.object); err != nil {
				return err
			}
		}
		to.flush()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A stream is a watch's answer.
type stream struct {
	frames  io.Writer
	objects runtime.Encoder
	events  runtime.Encoder
	flush   func()
}

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	info := negotiate(r)
	kind := info.MediaType
	if kind != runtime.ContentTypeJSON {
		kind += ";stream=watch"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	s := &stream{
		frames:  info.StreamSerializer.Framer.NewFrameWriter(w),
		objects: codecs.EncoderForVersion(info.Serializer, versionOf(r)),
		events:  codecs.EncoderForVersion(info.StreamSerializer.Serializer, versionOf(r)),
		flush:   func() {},
	}
	if f, ok := w.(http.Flusher); ok {
		s.flush = f.Flush
	}
	s.flush()
	return s
}

func (s *stream) send(kind watch.EventType, o runtime.Object) error {
	var raw bytes.Buffer
	if err := s.objects.Encode(own(o), &raw); err != nil {
		return fmt.Errorf("encode %T: %w", o, err)
	}
	var frame bytes.Buffer
	if err := s.events.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw.Bytes()}}, &frame); err != nil {
		return fmt.Errorf("encode an event of %T: %w", o, err)
	}
	_, err := s.frames.Write(frame.Bytes())
	return err
}

// own is a copy of a stored object for an encoder alone, which writes the kind
// into what it encodes; all else stays shared.
func own(o runtime.Object) runtime.Object {
	switch o := o.(type) {
	case *corev1.Node:
		c := *o
		return &c
	case *v1alpha1.VPCRoute:
		c := *o
		return &c
	}
	return o
}
