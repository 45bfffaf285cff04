// Package cri is a node's container runtime for tests: the machine's installed
// containerd and runc, started in the sandbox with directories and a network of
// their own and driven through the Container Runtime Interface, as the kubelet
// does. What Kubernetes decides is the tests' part; the plugins and their
// configuration are given. It imports nothing of the product.
package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// CacheDir is where containerd 1.6 has libcni keep the results of ADD; it can be
// configured nowhere. All nodes share it.
const CacheDir = "/var/lib/cni"

const (
	// stateRoot is on the sandbox's own tmpfs.
	stateRoot = "/run/nodes"

	startLimit   = time.Minute
	pollInterval = 10 * time.Millisecond
)

// A Node is a machine with a container runtime and an uplink.
type Node struct {
	// Network is the node's host network, and VPC the network its uplink leads to.
	Network, VPC *sandbox.Namespace
	// Dir holds all of the node's files. It survives Reboot but for the runtime's
	// state.
	Dir string
	// ConfigDir is the directory of the network configuration.
	ConfigDir string

	plugins string
	image   string
	cgroup  *cgroup
	// attempts counts sandboxes: the runtime wants each of one pod to have another
	// number.
	attempts atomic.Uint32

	process *exec.Cmd
	conn    *grpc.ClientConn
	runtime runtimev1.RuntimeServiceClient
}

// furnish adds to the sandbox what containerd needs outside its own directories,
// once per process.
var furnish = sync.OnceValue(func() error {
	if err := os.MkdirAll(CacheDir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", CacheDir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", CacheDir, err)
	}
	return nil
})

// Start starts a node whose runtime finds the plugins in that directory and
// whose pods' sandboxes are the static program pause. It has no network
// configuration yet. When the test ends nothing is left of it, and if the test
// failed the runtime's last words are in its log.
func Start(t testing.TB, plugins, pause string) *Node {
	t.Helper()
	if err := furnish(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(stateRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(stateRoot, "")
	if err != nil {
		t.Fatal(err)
	}
	cgroup, err := newCgroup()
	if err != nil {
		t.Fatalf("prepare cgroups: %v", err)
	}
	n := &Node{
		Dir:       dir,
		ConfigDir: filepath.Join(dir, "net.d"),
		plugins:   plugins,
		image:     filepath.Join(dir, "pause.tar"),
		cgroup:    cgroup,
	}
	t.Cleanup(func() { n.discard(t) })
	if err := os.Mkdir(n.ConfigDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeImage(n.image, pause); err != nil {
		t.Fatalf("write the sandbox image: %v", err)
	}
	if err := n.writeConfig(); err != nil {
		t.Fatalf("write containerd's configuration: %v", err)
	}
	n.VPC = sandbox.New(t, "vpc")
	n.plug(t)
	n.StartRuntime(t)
	n.importImage(t)
	return n
}

// plug makes the node's network: an uplink with a default route by each family,
// and the kernel forwarding.
func (n *Node) plug(t testing.TB) {
	t.Helper()
	n.Network = sandbox.New(t, "node")
	n.VPC.Run(t, "ip", "link", "add", "node", "type", "veth", "peer", "name", "eth0", "netns", n.Network.Name)
	for _, c := range []struct {
		ns   *sandbox.Namespace
		args string
	}{
		// Without this the kernel adds link-local addresses and their routes at a
		// moment of its own choice.
		{n.VPC, "link set node addrgenmode none"},
		{n.Network, "link set eth0 addrgenmode none"},
		{n.VPC, "address add 172.31.0.1/24 dev node"},
		{n.VPC, "address add fd00:172:31::1/64 dev node nodad"},
		{n.VPC, "link set node up"},
		{n.Network, "address add 172.31.0.11/24 dev eth0"},
		{n.Network, "address add fd00:172:31::11/64 dev eth0 nodad"},
		{n.Network, "link set eth0 up"},
		{n.Network, "route add default via 172.31.0.1"},
		{n.Network, "route add default via fd00:172:31::1"},
	} {
		c.ns.Run(t, "ip", strings.Fields(c.args)...)
	}
	err := n.Network.Do(func() error {
		for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("turn forwarding on: %v", err)
	}
}

// The score of the sandbox's process is kept as it is because a process without
// CAP_SYS_RESOURCE, as in many containers, may not lower it; runc then fails
// without saying so.
var containerdConfig = template.Must(template.New("config.toml").Parse(`version = 2
root = "{{.Dir}}/root"
state = "{{.Dir}}/state"
disabled_plugins = [
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[debug]
  level = "warn"

[grpc]
  address = "{{.Socket}}"

[ttrpc]
  address = "{{.Socket}}.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Image}}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  disable_tcp_service = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Plugins}}"
    conf_dir = "{{.ConfigDir}}"
    max_conf_num = 1

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{{.Dir}}/state/runc"
        SystemdCgroup = false
`))

func (n *Node) writeConfig() error {
	var config bytes.Buffer
	err := containerdConfig.Execute(&config, map[string]string{
		"Dir":       n.Dir,
		"Socket":    n.socket(),
		"Image":     sandboxImage,
		"Plugins":   n.plugins,
		"ConfigDir": n.ConfigDir,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(n.configFile(), config.Bytes(), 0o644)
}

func (n *Node) configFile() string { return filepath.Join(n.Dir, "config.toml") }
func (n *Node) socket() string     { return filepath.Join(n.Dir, "containerd.sock") }
func (n *Node) logFile() string    { return filepath.Join(n.Dir, "containerd.log") }

// StartRuntime starts containerd, after Start has or after KillRuntime, and waits
// until it answers.
func (n *Node) StartRuntime(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.process = exec.Command("containerd", "--config", n.configFile())
	n.process.Stdout, n.process.Stderr = log, log
	// A tracing exporter named in the environment would have it call out.
	n.process.Env = append(os.Environ(), "OTEL_SDK_DISABLED=true")
	if err := n.Network.Do(n.process.Start); err != nil {
		t.Fatalf("start containerd: %v", err)
	}
	n.conn, err = grpc.NewClient("unix://"+n.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	n.runtime = runtimev1.NewRuntimeServiceClient(n.conn)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	// Until it has read its records it answers with an error.
	for {
		_, err := n.runtime.Version(ctx, &runtimev1.VersionRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("containerd does not get ready: %v", err)
		}
		time.Sleep(pollInterval)
	}
}

// KillRuntime ends containerd with SIGKILL. Its shims and the pods' processes
// live on.
func (n *Node) KillRuntime(t testing.TB) {
	t.Helper()
	if err := n.endRuntime(); err != nil {
		t.Fatalf("kill containerd: %v", err)
	}
}

func (n *Node) endRuntime() error {
	if n.process == nil || n.process.Process == nil {
		return nil
	}
	var closed error
	if n.conn != nil {
		closed = n.conn.Close()
	}
	killed := n.process.Process.Kill()
	_ = n.process.Wait() // it says "signal: killed"
	n.process, n.conn = nil, nil
	return errors.Join(closed, killed)
}

// Reboot does to the node what a power cut does: every process ends at once, the
// network and the mounts are gone, and so is what lay under /run. The runtime's
// own records and the results that libcni cached are on disk and stay. The
// runtime is started again.
func (n *Node) Reboot(t testing.TB) {
	t.Helper()
	n.KillRuntime(t)
	if err := n.halt(); err != nil {
		t.Fatalf("end the node's processes: %v", err)
	}
	if err := n.Network.Delete(); err != nil {
		t.Fatal(err)
	}
	// The old network dies some moments after its last process; the new one must
	// not meet its uplink.
	_, _ = n.VPC.Try("ip", "link", "delete", "node")
	if err := os.RemoveAll(filepath.Join(n.Dir, "state")); err != nil {
		t.Fatal(err)
	}
	n.plug(t)
	n.StartRuntime(t)
}

// halt ends the pods' processes and their shims, and takes away their mounts and
// cgroups.
func (n *Node) halt() error {
	deadline := time.Now().Add(startLimit)
	for {
		pids, err := n.processes()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return errors.Join(n.unmount(), n.cgroup.Clear())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", pids)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		time.Sleep(pollInterval)
	}
}

// processes are the node's shims and all processes in its pods.
func (n *Node) processes() ([]int, error) {
	shims, err := n.shims()
	if err != nil {
		return nil, err
	}
	children, err := n.cgroup.Children()
	if err != nil {
		return nil, err
	}
	pids := map[int]bool{}
	for _, pid := range shims {
		pids[pid] = true
	}
	for _, dir := range children {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
			return nil, err
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			pids[pid] = true
		}
	}
	var all []int
	for pid := range pids {
		all = append(all, pid)
	}
	return all, nil
}

// shims are the processes that containerd has put between itself and each pod.
// They outlive it, and nothing but their arguments says whose they are.
func (n *Node) shims() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended meanwhile
		if bytes.Contains(args, []byte("containerd-shim")) && bytes.Contains(args, []byte(n.socket())) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Shims are the command lines of the node's shims.
func (n *Node) Shims() ([]string, error) {
	pids, err := n.shims()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, pid := range pids {
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
			lines = append(lines, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return lines, nil
}

// Cgroups are the directories of the pods' cgroups.
func (n *Node) Cgroups() ([]string, error) { return n.cgroup.Children() }

// Mounts are the mount points below the node's directory: the pods' root file
// systems and namespaces.
func (n *Node) Mounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, n.Dir+"/") {
			points = append(points, point)
		}
	}
	return points, nil
}

func (n *Node) unmount() error {
	points, err := n.Mounts()
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// discard ends the node, however far it got and whatever a test did to it.
func (n *Node) discard(t testing.TB) {
	if t.Failed() {
		if log, err := os.ReadFile(n.logFile()); err == nil {
			t.Logf("end of containerd's log:\n%s", log[max(0, len(log)-8192):])
		}
	}
	err := errors.Join(n.endRuntime(), n.halt(), n.cgroup.Remove(), os.RemoveAll(n.Dir))
	if err != nil {
		t.Errorf("clean up the node: %v", err)
	}
}

// importImage gives the runtime the sandbox image by the tool that comes with
// it: the Container Runtime Interface can only pull.
func (n *Node) importImage(t testing.TB) {
	t.Helper()
	n.Ctr(t, "images", "import", n.image)
}

// Ctr runs containerd's own client against the node's runtime and returns what
// it prints.
func (n *Node) Ctr(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ctr", append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
