package main

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// A nodeWatch follows one Node object and writes Events on it.
type nodeWatch struct {
	recorder record.EventRecorder

	mu     sync.Mutex
	latest *corev1.Node // nil until it was seen
	early  []warning    // said before that
}

// A warning is an Event to be.
type warning struct{ reason, message string }

// watchNode begins to follow a Node; changed is called after each change that
// the agent cares for. It does not wait for the API server: until that answers,
// the node is the zero Node, and the agent works from what is installed.
func watchNode(ctx context.Context, kubeconfig, name string, changed func()) (*nodeWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "vpcroute-node-agent/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	w := &nodeWatch{recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "vpcroute-node-agent", Host: name})}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 10*time.Minute,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}))
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.see(o, changed) },
		UpdateFunc: func(_, o any) { w.see(o, changed) },
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	return w, nil
}

func (w *nodeWatch) see(o any, changed func()) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	w.mu.Lock()
	before, early := w.latest, w.early
	w.latest, w.early = n, nil
	w.mu.Unlock()
	for _, e := range early {
		w.warn(e.reason, e.message)
	}
	if before == nil || differ(before, n) {
		changed()
	}
}

// differ is false for heartbeats, which are most changes of a Node.
func differ(a, b *corev1.Node) bool {
	x, y := fromObject(a), fromObject(b)
	return x.UID != y.UID || x.MaxPods != y.MaxPods || !slices.Equal(x.PodCIDRs, y.PodCIDRs) || !slices.Equal(x.Addresses, y.Addresses)
}

// node returns the Node as last seen.
func (w *nodeWatch) node() node.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return node.Node{}
	}
	return fromObject(w.latest)
}

// fromObject reads what the agent needs. What cannot be read is left out: the
// API server has validated podCIDRs, and addresses of other kinds are names.
func fromObject(o *corev1.Node) node.Node {
	n := node.Node{Name: o.Name, UID: string(o.UID), MaxPods: int(o.Status.Capacity.Pods().Value())}
	for _, text := range o.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			n.PodCIDRs = append(n.PodCIDRs, p.Masked())
		}
	}
	for _, address := range o.Status.Addresses {
		if a, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			n.Addresses = append(n.Addresses, a.Unmap())
		}
	}
	return n
}

// warn writes an Event on the Node, once that was seen: an agent that starts
// anew finds out what is wrong before it has reached the API server, and says
// it only once.
func (w *nodeWatch) warn(reason, message string) {
	w.mu.Lock()
	n := w.latest
	if n == nil {
		w.early = append(w.early, warning{reason, message})
	}
	w.mu.Unlock()
	if n == nil {
		return
	}
	w.recorder.Event(&corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID}, corev1.EventTypeWarning, reason, message)
}
