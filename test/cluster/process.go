package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// A Process is a program at work that can be started again after it has ended.
// The sandbox's process namespace takes it along if the test dies.
type Process struct {
	// Restarted is, when set before Start, called each time the process was
	// started again after it had ended by itself, as a kubelet does. Without it
	// a process that ends stays so.
	Restarted func()
	// Env is added to the environment of the test.
	Env []string

	program string
	args    []string
	in      *sandbox.Namespace
	logFile string

	mu   sync.Mutex
	cmd  *exec.Cmd
	over bool          // it is meant to end
	done chan struct{} // closed once it has ended and is not started again
	err  error         // valid once done is closed
}

// NewProcess prepares a program to run inside a network namespace, or in that
// of the test when in is nil. It is ended with the test.
func NewProcess(t testing.TB, in *sandbox.Namespace, program string, args ...string) *Process {
	p := &Process{program: program, args: args, in: in, logFile: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		p.Kill(t)
		if t.Failed() {
			t.Logf("%s %v printed:\n%s", filepath.Base(p.program), p.args, p.Log())
		}
	})
	return p
}

// Start starts the process.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over, p.done = false, make(chan struct{})
	if err := p.launch(); err != nil {
		t.Fatalf("start %s: %v", filepath.Base(p.program), err)
	}
	go p.wait(p.cmd, p.done)
}

// launch starts the program; the caller holds the lock.
func (p *Process) launch() error {
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.program, p.args...)
	p.cmd.Env = append(os.Environ(), p.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.in == nil {
		return p.cmd.Start()
	}
	return p.in.Do(p.cmd.Start)
}

// restartDelay is a kubelet's first pause, cut short.
const restartDelay = time.Second

func (p *Process) wait(cmd *exec.Cmd, done chan struct{}) {
	defer close(done)
	for {
		err := cmd.Wait()
		if p.restarts() {
			time.Sleep(restartDelay)
		}
		p.mu.Lock()
		p.err = err
		if p.over || p.Restarted == nil || p.launch() != nil {
			p.mu.Unlock()
			return
		}
		cmd = p.cmd
		p.mu.Unlock()
		p.Restarted()
	}
}

// restarts is true when the process is started again once it has ended.
func (p *Process) restarts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.over && p.Restarted != nil
}

// finish says that the process is meant to end.
func (p *Process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// Stop makes the process end by SIGTERM and waits until it has. It returns how
// the process ended: nil for code 0.
func (p *Process) Stop(t testing.TB) error {
	t.Helper()
	p.finish()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.Kill(t)
		return fmt.Errorf("%s did not end within %s of SIGTERM", filepath.Base(p.program), patience)
	}
}

// Kill makes the process end by SIGKILL, if it runs, and waits until it has.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if p.done == nil || p.Ended() {
		return
	}
	p.finish()
	p.signal(t, syscall.SIGKILL)
	<-p.done
}

// Ended is true when the process has ended and is not started again.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Freeze stops the process from running, until Thaw or the end of the test. Its
// connections stay open meanwhile.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%s: send %s: %v", filepath.Base(p.program), s, err)
	}
}

// Log returns what the process has printed, over all its starts.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// tail returns the last lines of the log.
func (p *Process) tail(lines int) string {
	all := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

var servers sync.Map // package path → func() (string, error)

// server returns the path of a server's program, which is built when the build
// cache does not hold it: minutes then, a second or two later.
func server(t testing.TB, pkg string) string {
	t.Helper()
	once, _ := servers.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
		cmd := exec.Command("go", "tool", "-n", pkg)
		cmd.Dir = "servers" // a module of its own, below the package that is tested
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return "", errors.New(string(exit.Stderr))
		}
		return strings.TrimSpace(string(out)), err
	}))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", pkg, err)
	}
	return path
}
