package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// A Process is a program of the box at work.
type Process struct {
	// LogFile holds what the program prints.
	LogFile string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// Start starts a program as a process of the box, inside a namespace or, when
// in is nil, where the caller is. It outlives the caller unless it is stopped or
// the box torn down. Signals from the terminal do not reach it.
func (b *Box) Start(in *sandbox.Namespace, cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, LogFile: filepath.Join(b.Dir, filepath.Base(cmd.Path)+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), mark(b.Dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := cmd.Start
	if in != nil {
		start = func() error { return in.Do(cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Stop asks the process to end and waits until it has. It fails when the
// process ends with another code than 0.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.Err()
	case <-ctx.Done():
		return fmt.Errorf("%s does not end on SIGTERM: %w", filepath.Base(p.cmd.Path), ctx.Err())
	}
}

// String is the command line.
func (p *Process) String() string {
	return strings.Join(append([]string{filepath.Base(p.cmd.Path)}, p.cmd.Args[1:]...), " ")
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how a process that is Done ended: nil for code 0.
func (p *Process) Err() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w, see %s", filepath.Base(p.cmd.Path), p.err, p.LogFile)
}

// Log returns what the process has printed.
func (p *Process) Log() (string, error) {
	text, err := os.ReadFile(p.LogFile)
	return string(text), err
}

// StartController starts the built route controller on the box's nodes file and
// the VPC's route table, or what VPCFlags say.
func (b *Box) StartController(in *sandbox.Namespace, more ...string) (*Process, error) {
	return b.Start(in, b.controller(append(b.controllerFlags(), more...)...))
}

// RunController runs one verb of the built route controller, for example
// "cleanup", on the same table and ledger, and returns its combined output.
func (b *Box) RunController(args ...string) (string, error) {
	out, err := b.controller(append(args, b.controllerFlags()...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("route-controller %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

func (b *Box) controller(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(b.Programs, "route-controller"), args...)
}

func (b *Box) controllerFlags() []string {
	flags := []string{
		"--nodes", b.NodesFile(),
		"--ledger", filepath.Join(b.Dir, "ledger.json"),
	}
	if b.VPCFlags == nil {
		flags = append(flags, "--vpc", "linux", "--linux-netns", b.Router.Path())
	}
	flags = append(flags, b.VPCFlags...)
	for _, p := range b.ClusterCIDRs {
		flags = append(flags, "--cluster-cidr", p.String())
	}
	return flags
}
