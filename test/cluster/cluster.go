// Package cluster starts a real Kubernetes control plane for a test: etcd and
// kube-apiserver, built from their Go modules, with role-based access control
// on. There is no kubelet, so Nodes and pods are objects, and unless a test asks
// for controllers nothing but the program under test acts on them. It is for
// tests only; it must not import the product's packages, apart from the API's
// types.
package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpcroute/vpcroute/api/v1alpha1"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// patience is how long a server gets to become ready or to end: far more than
// the seconds it takes on an idle machine.
const patience = 5 * time.Minute

// Where says where a control plane runs.
type Where struct {
	// Namespace is the network namespace of its processes; that of the test when
	// nil.
	Namespace *sandbox.Namespace
	// Address is the API server's own, reachable for every client; 127.0.0.1
	// when it is the zero Addr.
	Address netip.Addr
}

// A Cluster is a running control plane.
type Cluster struct {
	// Admin is the configuration of a client that may do everything, usable from
	// the test's process whatever namespace the servers are in.
	Admin *rest.Config
	// Client and Clientset are such clients.
	Client    client.Client
	Clientset kubernetes.Interface

	where     Where
	dir       string
	etcd      *Process
	apiserver *Process
	port      int
}

// Start starts a control plane and stops it when the test ends. It returns when
// the API server is ready, which takes some seconds.
func Start(t testing.TB, where Where) *Cluster {
	t.Helper()
	if !where.Address.IsValid() {
		where.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	c := &Cluster{where: where, dir: t.TempDir()}
	if err := c.configure(t); err != nil {
		t.Fatalf("configure the control plane: %v", err)
	}
	t.Cleanup(func() {
		// In this order: an API server whose etcd is gone waits for it.
		for _, p := range []*Process{c.apiserver, c.etcd} {
			if p.done != nil && !p.Ended() {
				p.Thaw(t)
				_ = p.Stop(t) // what it has to say is in its log
			}
		}
	})
	c.etcd.Start(t)
	c.apiserver.Start(t)
	c.WaitReady(t)
	return c
}

// configure writes the servers' files and prepares their processes and clients.
func (c *Cluster) configure(t testing.TB) error {
	ports, err := c.freePorts(3)
	if err != nil {
		return err
	}
	c.port = ports[2]
	files, err := c.writeFiles()
	if err != nil {
		return err
	}
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	c.etcd = &Process{
		in:      c.where.Namespace,
		program: server(t, "go.etcd.io/etcd/server/v3"),
		logFile: filepath.Join(c.dir, "etcd.log"),
		args: []string{
			"--data-dir=" + filepath.Join(c.dir, "etcd"),
			"--listen-client-urls=" + etcdURL,
			"--advertise-client-urls=" + etcdURL,
			fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", ports[1]),
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
	}
	c.apiserver = &Process{
		in:      c.where.Namespace,
		program: server(t, "k8s.io/kubernetes/cmd/kube-apiserver"),
		logFile: filepath.Join(c.dir, "kube-apiserver.log"),
		args: append(files.flags(),
			"--etcd-servers="+etcdURL,
			"--advertise-address="+c.where.Address.String(),
			"--bind-address="+c.where.Address.String(),
			fmt.Sprintf("--secure-port=%d", c.port),
			"--service-cluster-ip-range=10.96.0.0/16",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--authorization-mode=RBAC",
			"--anonymous-auth=false",
			"--endpoint-reconciler-type=none",
			"--profiling=false",
		),
	}
	return c.makeClients(files.certificates)
}

// freePorts finds TCP ports that are free on every address.
func (c *Cluster) freePorts(n int) (ports []int, err error) {
	err = c.inside(func() error {
		for range n {
			l, err := net.Listen("tcp", ":0")
			if err != nil {
				return err
			}
			defer l.Close()
			ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		}
		return nil
	})
	return ports, err
}

// inside runs f where the servers are.
func (c *Cluster) inside(f func() error) error {
	if c.where.Namespace == nil {
		return f()
	}
	return c.where.Namespace.Do(f)
}

func (c *Cluster) makeClients(authority []byte) (err error) {
	c.Admin = c.config(authority, adminToken)
	c.Admin.Dial = c.dial
	c.Admin.QPS, c.Admin.Burst = -1, -1
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	if c.Clientset, err = kubernetes.NewForConfig(c.Admin); err != nil {
		return err
	}
	c.Client, err = client.New(c.Admin, client.Options{Scheme: scheme})
	return err
}

// config is the configuration of a client that runs inside the namespace.
func (c *Cluster) config(authority []byte, token string) *rest.Config {
	return &rest.Config{
		Host:            "https://" + netip.AddrPortFrom(c.where.Address, uint16(c.port)).String(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: authority},
	}
}

// dial connects from inside the servers' namespace.
func (c *Cluster) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = c.inside(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// WaitReady waits until the API server says that it is ready.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := c.Clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).Do(context.Background()).Error()
		if err == nil {
			return
		}
		for _, p := range []*Process{c.etcd, c.apiserver} {
			if p.Ended() {
				t.Fatalf("%s ended:\n%s", filepath.Base(p.program), p.tail(40))
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the API server is not ready after %s: %v\n%s", patience, err, c.apiserver.tail(40))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Server is the API server's process. Ended alone, without etcd, it can be
// started again; clients meanwhile see refused connections, and with a frozen
// one, no answers.
func (c *Cluster) Server() *Process { return c.apiserver }

// writeFile writes one file of the control plane.
func (c *Cluster) writeFile(name string, content []byte) (path string, err error) {
	path = filepath.Join(c.dir, name)
	return path, os.WriteFile(path, content, 0o600)
}
