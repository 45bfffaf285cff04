// Package packets ends an emulated cloud in packets: the built controller talks
// to the emulator over the real SDK, the emulator's table programs the VPC in a
// box, and pods meet by it or do not. It is one suite for every cloud, which
// adds a row to its test; it is for tests only, and nothing of the product may
// import it.
package packets

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// A Cloud is an emulator that knows the machines of a box.
type Cloud struct {
	*cloud.Frame
	// Handler answers the API.
	Handler http.Handler
	// Flags and Env make the controller talk to the API at url; the flags say
	// neither which nodes there are nor which range the cluster has.
	Flags func(url string) []string
	Env   []string
}

// patience bounds every wait for what must happen.
const patience = time.Minute

// Run raises a box with three nodes and a pod on each, and has the controller
// route between them by way of the cloud that start makes for the box. Its
// package's TestMain must be sandbox.Main.
func Run(t *testing.T, start func(box *netns.Box) Cloud) {
	t.Helper()
	box := raise(t)
	c := start(box)
	url := serve(t, box, c)

	meet(t, box)
	tell(t, box, box.Objects()...)
	control(t, box, c, url)
	await(t, box, box.Nodes...)
	meet(t, box, box.Nodes...)

	// Gone from the cluster, gone from the cloud's table, out of reach.
	tell(t, box, box.Objects()[:2]...)
	await(t, box, box.Nodes[:2]...)
	meet(t, box, box.Nodes[:2]...)
}

// A Hindrance keeps packets from following routes that the cloud has taken.
type Hindrance struct {
	// Routed is true when the cloud's table has the routes of all nodes.
	Routed func() bool
	// Cause is what the controller's log has to name.
	Cause string
	// Remove takes the hindrance away, as an operator would.
	Remove func()
}

// RunHindered raises a box as Run does, for a cloud that takes the routes and
// drops their packets: nobody meets, the log says why, and everybody meets once
// the hindrance is removed.
func RunHindered(t *testing.T, start func(box *netns.Box) (Cloud, Hindrance)) {
	t.Helper()
	box := raise(t)
	c, h := start(box)
	url := serve(t, box, c)
	tell(t, box, box.Objects()...)
	p := control(t, box, c, url, "--verify", "probe")
	until(t, "the cloud has the routes", h.Routed)
	until(t, "the log names "+h.Cause, func() bool {
		text, err := p.Log()
		return err == nil && strings.Contains(text, h.Cause)
	})
	meet(t, box)
	h.Remove()
	await(t, box, box.Nodes...)
	meet(t, box, box.Nodes...)
}

// until waits until something is true.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %s: %s", patience, what)
		}
	}
}

// serve answers for the cloud and lets its tables program the box.
func serve(t *testing.T, box *netns.Box, c Cloud) (url string) {
	c.Program = cloud.Programmer(box.Route, box.Unroute, func(err error) { t.Error(err) })
	server := httptest.NewServer(c.Handler)
	t.Cleanup(server.Close)
	return server.URL
}

// raise makes a box whose hosts all serve.
func raise(t *testing.T) *netns.Box {
	programs := t.TempDir()
	for name, from := range map[string]string{"vpcroute": "./cmd/cni", "route-controller": "./cmd/route-controller"} {
		if err := os.Symlink(sandbox.Build(t, from), filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	box, err := netns.Raise(netns.Config{Parent: "/run", Programs: programs, IPv4Only: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.TearDown(); err != nil {
			t.Error(err)
		}
	})
	for i, n := range box.Nodes {
		if _, err := n.Attach(t.Context(), fmt.Sprintf("pod-%d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	servers, err := netns.Serve(box.Hosts()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
	return box
}

// control starts the built controller, and shows its log if the test fails.
func control(t *testing.T, box *netns.Box, c Cloud, url string, more ...string) *netns.Process {
	args := append([]string{"--nodes", box.NodesFile(), "--cluster-cidr", box.ClusterCIDRs[0].String()}, c.Flags(url)...)
	args = append(args, more...)
	cmd := exec.Command(filepath.Join(box.Programs, "route-controller"), args...)
	// box.Start hands the process this one's environment.
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	p, err := box.Start(nil, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
		if text, err := p.Log(); t.Failed() {
			t.Logf("the controller's log (%v):\n%s", err, text)
		}
	})
	return p
}

// tell writes the nodes file.
func tell(t *testing.T, box *netns.Box, nodes ...netns.NodeObject) {
	t.Helper()
	if err := box.WriteNodes(nodes...); err != nil {
		t.Fatal(err)
	}
}

// await waits until the VPC routes exactly to these nodes' ranges.
func await(t *testing.T, box *netns.Box, nodes ...*netns.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := box.AwaitRoutes(ctx, netns.RoutesTo(nodes...)...); err != nil {
		t.Fatal(err)
	}
}

// meet has everybody ask everybody: those whose ranges are routed meet under
// their own addresses, the others do not meet.
func meet(t *testing.T, box *netns.Box, routed ...*netns.Node) {
	t.Helper()
	expected := netns.Expect(routed...)
	cells := netns.Matrix(t.Context(), box.Hosts(), box.ClusterCIDRs[0].Addr(), expected)
	for _, err := range netns.Judge(cells, expected) {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
}
