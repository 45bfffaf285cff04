// Package sandbox runs kernel tests where they can harm nothing: it re-runs a
// test binary in network, mount, process and (for an ordinary user) user
// namespaces of its own, so that test packages run side by side and the kernel
// cleans up after them, however they end. It is for tests only; nothing of the
// product may import it.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	insideEnv = "VPCROUTE_SANDBOX"
	strictEnv = "VPCROUTE_TEST_STRICT"

	// The values of insideEnv. A test binary that a test starts finds the
	// sandbox furnished and runs in it as it is.
	bare      = "bare"
	furnished = "furnished"
)

// Main is the TestMain of a package with kernel tests: it runs the tests inside
// the sandbox and exits. Where namespaces cannot be had it prints why and exits
// with 0, or with 1 when VPCROUTE_TEST_STRICT is set, as it is in CI.
func Main(m *testing.M) {
	enter(os.Getenv(strictEnv) != "")
	os.Exit(m.Run())
}

// Enter puts the calling program into the sandbox and returns inside it; the
// process outside waits and ends with the same exit code. Where namespaces cannot
// be had the program ends with 1.
func Enter() { enter(true) }

func enter(must bool) {
	switch os.Getenv(insideEnv) {
	case "":
		os.Exit(reexec(must))
	case bare:
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox:", err)
			os.Exit(1)
		}
	}
}

func reexec(must bool) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"="+bare)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	// The parent-death signal is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox: kernel tests need namespaces (run as root, or allow user namespaces):", err)
		if must {
			return 1
		}
		return 0
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	default:
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
}

// furnish gives the new mount namespace a /proc, /sys, /run and /var/log of its
// own.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/var/log"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.at, err)
		}
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	return os.Setenv(insideEnv, furnished)
}

// A Namespace is a named network namespace with its loopback up.
type Namespace struct {
	// Name is its name for "ip netns exec".
	Name string
}

var serial atomic.Int64

// New makes a network namespace whose name starts with prefix and removes it
// when the test ends.
func New(t testing.TB, prefix string) *Namespace {
	t.Helper()
	n, err := Create(fmt.Sprintf("%s-%d", prefix, serial.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Delete() })
	return n
}

// Create makes a network namespace of exactly this name, which the caller has
// to Delete. It needs no sandbox around it.
func Create(name string) (*Namespace, error) {
	err := onThread(func() error {
		h, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", name, err)
	}
	return &Namespace{Name: name}, nil
}

// Path is the file that stands for the namespace, as CNI_NETNS wants it.
func (n *Namespace) Path() string { return filepath.Join("/run/netns", n.Name) }

// Delete removes the namespace; it is not an error if it is gone already.
func (n *Namespace) Delete() error {
	if err := netns.DeleteNamed(n.Name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Do runs f on a thread inside the namespace. Goroutines that f starts are not
// inside it; processes that f starts are.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		h, err := netns.GetFromPath(n.Path())
		if err != nil {
			return fmt.Errorf("open %s: %w", n.Path(), err)
		}
		defer h.Close()
		if err := netns.Set(h); err != nil {
			return fmt.Errorf("enter %s: %w", n.Path(), err)
		}
		return f()
	})
}

// onThread runs f on a goroutine whose thread is thrown away afterwards, so a
// namespace that f enters never leaks into another goroutine.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		done <- f()
	}()
	return <-done
}

// Run runs a command inside the namespace and returns its combined output
// without surrounding space; a failing command fails the test.
func (n *Namespace) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := n.Try(name, args...)
	if err != nil {
		t.Fatalf("in %s: %s %s: %v\n%s", n.Name, name, strings.Join(args, " "), err, out)
	}
	return out
}

// Try is Run for a command that may fail.
func (n *Namespace) Try(name string, args ...string) (string, error) {
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	return strings.TrimSpace(string(out)), err
}

var builds sync.Map // package path → func() (string, error)

// Build builds a command of this module once per test binary, for example
// "./cmd/cni", with cgo off, and returns the program's path.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	once, _ := builds.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(pkg) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", pkg, err)
	}
	return path
}

func build(pkg string) (string, error) {
	// Named, since the tests of other modules call this too.
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/vpcroute/vpcroute").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	// /run is this sandbox's own tmpfs, so the program vanishes with it.
	path := filepath.Join("/run/bin", strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-"))
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}
