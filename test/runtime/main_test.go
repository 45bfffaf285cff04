// Package runtime_test proves the plugin where it is used: the built program,
// alone and chained, called by containerd and runc as Debian packages them, for
// pod sandboxes asked for over the Container Runtime Interface. It knows the
// plugin by its command line, its configuration and what it does to the kernel;
// it imports nothing of the product.
package runtime_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "a container runtime can be started by root alone: nothing was tested")
		if os.Getenv("VPCROUTE_TEST_STRICT") != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	sandbox.Main(m)
}

const (
	programDir = "/run/bin" // on the sandbox's own tmpfs
	productDir = "../.."
)

// programs builds everything a node has installed into programDir.
var programs = sync.OnceValue(func() error {
	if err := os.MkdirAll(programDir, 0o755); err != nil {
		return err
	}
	const plugins = "github.com/containernetworking/plugins/plugins/"
	if err := build(".", "./pause", plugins+"main/loopback", plugins+"meta/portmap", plugins+"meta/bandwidth"); err != nil {
		return err
	}
	if err := build(productDir, "./cmd/cni"); err != nil {
		return err
	}
	return os.Rename(filepath.Join(programDir, "cni"), filepath.Join(programDir, "vpcroute"))
})

func build(dir string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", programDir + "/"}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v in %s: %w\n%s", packages, dir, err, out)
	}
	return nil
}

// startNode starts a node with the built plugins and this configuration.
func startNode(t *testing.T, c conflist) *cri.Node {
	t.Helper()
	if err := programs(); err != nil {
		t.Fatal(err)
	}
	n := cri.Start(t, programDir, filepath.Join(programDir, "pause"))
	n.Configure(t, c.bytes(n))
	return n
}

// The ranges that a node's pods have their addresses from unless a test says
// otherwise.
var dualStack = []string{"10.244.1.0/24", "fd00:10:244:1::/64"}

// A conflist is a node's network configuration: this plugin, and those after it.
type conflist struct {
	version string // 1.0.0 when empty
	ranges  []string
	after   []map[string]any
}

var (
	alone   = conflist{ranges: dualStack}
	chained = conflist{ranges: dualStack, after: []map[string]any{portmap(""), bandwidth}}

	bandwidth = map[string]any{"type": "bandwidth", "capabilities": map[string]any{"bandwidth": true}}
)

// portmap is upstream's host ports with that packet filter, or the one it
// chooses.
func portmap(backend string) map[string]any {
	m := map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}}
	if backend != "" {
		m["backend"] = backend
	}
	return m
}

// bytes is the configuration as it stands in a file of the node.
func (c conflist) bytes(n *cri.Node) []byte {
	ours := map[string]any{
		"type":     "vpcroute",
		"podCIDRs": c.ranges,
		"stateDir": stateDir(n),
		"logFile":  filepath.Join(n.Dir, "vpcroute.log"),
	}
	version := c.version
	if version == "" {
		version = "1.0.0"
	}
	data, err := json.Marshal(map[string]any{
		"cniVersion": version,
		"name":       "pods",
		"plugins":    append([]map[string]any{ours}, c.after...),
	})
	if err != nil {
		panic(err)
	}
	return data
}

func stateDir(n *cri.Node) string { return filepath.Join(n.Dir, "vpcroute") }

// pod is a pod whose UID is made from its name.
func pod(name string) cri.Pod {
	return cri.Pod{Namespace: "default", Name: name, UID: "uid-of-" + name}
}
