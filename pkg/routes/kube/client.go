// Package kube runs the route controller on a Kubernetes API: Nodes come from a
// watch, VPCRoutes are the ledger and show each route's state, the condition
// NetworkUnavailable and Events say what became of each node, and a Lease lets
// one controller write at a time. It must not decide anything about routes, and
// writes to no object that is not named here.
package kube

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
)

// callTimeout bounds every call of the API server but watches.
const callTimeout = 10 * time.Second

// A Client speaks to the API groups that the controller needs, and no others.
type Client struct {
	core, events, coordination, vpcroute rest.Interface
}

// Connect makes a client from a kubeconfig file or, when path is empty, from the
// service account of the pod that it runs in.
func Connect(path, agent string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes (kubeconfig %q): %w", path, err)
	}
	// Conditions and records of thousands of nodes come at once; the API
	// server's own fairness protects it.
	config.QPS, config.Burst = 200, 400
	config.UserAgent = agent
	return NewClient(config)
}

// NewClient makes a client of a configuration.
func NewClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	var c Client
	for _, group := range []struct {
		version schema.GroupVersion
		client  *rest.Interface
	}{
		{corev1.SchemeGroupVersion, &c.core},
		{eventsv1.SchemeGroupVersion, &c.events},
		{coordinationv1.SchemeGroupVersion, &c.coordination},
		{v1alpha1.GroupVersion, &c.vpcroute},
	} {
		of := rest.CopyConfig(config)
		of.GroupVersion = &group.version
		of.APIPath = "/apis"
		if group.version.Group == "" {
			of.APIPath = "/api"
		}
		of.NegotiatedSerializer = codecs.WithoutConversion()
		client, err := rest.RESTClientFor(of)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", group.version, err)
		}
		*group.client = client
	}
	return &c, nil
}
