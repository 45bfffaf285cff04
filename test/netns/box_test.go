package netns_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// patience bounds every wait for what must happen.
const patience = time.Minute

// installed is the directory of the built programs, in the sandbox's own /run.
var installed = sync.OnceValues(func() (string, error) {
	dir := "/run/installed"
	return dir, os.Mkdir(dir, 0o755)
})

// programs builds the plugin and the controller and returns where they are.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"vpcroute": "./cmd/cni", "route-controller": "./cmd/route-controller"} {
		if err := os.Symlink(sandbox.Build(t, from), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return dir
}

// raise makes a box with pods on every node, all hosts serving; it is taken down
// when the test ends.
func raise(t *testing.T, c netns.Config, podsPerNode int) *netns.Box {
	t.Helper()
	c.Parent, c.Programs = "/run", programs(t)
	box, err := netns.Raise(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			explain(t, box)
		}
		if err := box.TearDown(); err != nil {
			t.Error(err)
		}
	})
	for i, n := range box.Nodes {
		for j := range podsPerNode {
			if _, err := n.Attach(t.Context(), fmt.Sprintf("pod-%d%c", i+1, 'a'+j)); err != nil {
				t.Fatal(err)
			}
		}
	}
	serve(t, box.Hosts()...)
	return box
}

func serve(t *testing.T, hosts ...*netns.Host) {
	t.Helper()
	servers, err := netns.Serve(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
}

// explain logs what the box looks like when a test has failed.
func explain(t *testing.T, box *netns.Box) {
	logs, _ := filepath.Glob(filepath.Join(box.Dir, "*.log"))
	more, _ := filepath.Glob(filepath.Join(box.Dir, "*", "*.log"))
	for _, path := range append(logs, more...) {
		text, _ := os.ReadFile(path)
		t.Logf("%s:\n%s", path, text)
	}
	for _, family := range []string{"-4", "-6"} {
		text, _ := box.Router.Try("ip", family, "route")
		t.Logf("the VPC's routes (%s):\n%s", family, text)
	}
}

// control starts the controller on the box's true Nodes and waits for their
// routes.
func control(t *testing.T, box *netns.Box) *netns.Process {
	t.Helper()
	tell(t, box, box.Objects()...)
	p, err := box.StartController(nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, box, netns.RoutesTo(box.Nodes...)...)
	return p
}

// tell writes the nodes file.
func tell(t *testing.T, box *netns.Box, nodes ...netns.NodeObject) {
	t.Helper()
	if err := box.WriteNodes(nodes...); err != nil {
		t.Fatal(err)
	}
}

// await waits until the VPC's route table is this, the nodes' own addresses
// apart.
func await(t *testing.T, box *netns.Box, want ...netns.Route) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := box.AwaitRoutes(ctx, want...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds; its last answer is the complaint.
func eventually(t *testing.T, condition func() (complaint string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		complaint := condition()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// meet checks, in both families and over TCP and UDP, that exactly those hosts
// reach each other who should when these nodes' podCIDRs are routed, each seen
// under its own address.
func meet(t *testing.T, box *netns.Box, routed ...*netns.Node) {
	t.Helper()
	expected := netns.Expect(routed...)
	for _, cluster := range box.ClusterCIDRs {
		cells := netns.Matrix(t.Context(), box.Hosts(), cluster.Addr(), expected)
		for _, err := range netns.Judge(cells, expected) {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
