package cluster

import (
	"errors"
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

// A process is a server that can be started again after it ended. The sandbox's
// process namespace takes it along if the test dies.
type process struct {
	program string
	args    []string
	in      *sandbox.Namespace
	logFile string

	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	start := cmd.Start
	if p.in != nil {
		start = func() error { return p.in.Do(cmd.Start) }
	}
	if err := start(); err != nil {
		t.Fatalf("start %s: %v", filepath.Base(p.program), err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(done)
	}()
	p.cmd, p.done = cmd, done
}

// end makes the process end, if it runs, and waits until it has.
func (p *process) end(t testing.TB) {
	t.Helper()
	if p.cmd == nil || p.ended() {
		return
	}
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.signal(t, syscall.SIGKILL)
		<-p.done
		t.Errorf("%s did not end within %s of SIGTERM", filepath.Base(p.program), patience)
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) freeze(t testing.TB) (thaw func()) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	thaw = sync.OnceFunc(func() { p.signal(t, syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%s: send %s: %v", filepath.Base(p.program), s, err)
	}
}

// tail returns the last lines of the log.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

var programs sync.Map // package path → func() (string, error)

// program returns the path of a server, which is built when the build cache
// does not hold it: minutes then, a second or two later.
func program(t testing.TB, pkg string) string {
	t.Helper()
	once, _ := programs.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
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
