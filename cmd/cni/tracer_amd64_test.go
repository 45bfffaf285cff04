package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A fault is what happens to the plugin at one of its operations.
type fault int

const (
	noFault    fault = iota
	killBefore       // kill -9 when the operation is about to happen
	killAfter        // kill -9 when it has happened
	failOnce         // the operation does not happen and reports an error
	failOn           // neither does any later one
	hang             // the operation takes for ever, and then happens
)

func (f fault) String() string {
	return [...]string{"none", "killed before", "killed after", "failed", "failed from then on", "hung"}[f]
}

// A trace is a run of the plugin under ptrace.
type trace struct {
	answer
	// operations are the system calls by which it changes the kernel or a file, in
	// order; the last one is the faulty one, if there was a fault.
	operations []string
	killed     bool
}

// trace runs the built plugin, unchanged, and does something to its at-th
// operation, counting from 0.
func (n *node) trace(t testing.TB, r request, f fault, at int) trace {
	t.Helper()
	return n.traceDuring(t, r, f, at, func() {})
}

// traceDuring is trace with something to do while the operation hangs.
func (n *node) traceDuring(t testing.TB, r request, f fault, at int, during func()) trace {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(n.stdin(t, r)), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := tracer{fault: f, at: at, during: during, inCall: map[int]bool{}, faulty: map[int]bool{}}
	err := n.Do(func() error { return tr.run(n.plugin, r.env(), in, out) })
	if err != nil {
		t.Fatalf("trace: %v", err)
	}
	stdout, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	result := trace{operations: tr.operations, killed: tr.status.Signaled()}
	result.stdout = string(stdout)
	if tr.status.ExitStatus() != 0 {
		result.err = fmt.Errorf("exit status %d", tr.status.ExitStatus())
	}
	return result
}

type tracer struct {
	fault      fault
	at         int
	during     func()
	leader     int
	operations []string
	inCall     map[int]bool // threads between entering and leaving a system call
	faulty     map[int]bool // threads in a call that is to fail or to be the last
	status     syscall.WaitStatus
}

// run starts a program under ptrace and follows all of its threads to their end.
// It must be called on a locked thread, whose tracees they become.
func (tr *tracer) run(program string, env []string, in, out string) error {
	stdin, err := os.Open(in)
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := os.Create(out)
	if err != nil {
		return err
	}
	defer stdout.Close()
	p, err := os.StartProcess(program, []string{program}, &os.ProcAttr{
		Env: env, Files: []*os.File{stdin, stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(p)
	tr.leader = p.Pid
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(tr.leader, &ws, 0, nil); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(tr.leader, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	if err := syscall.PtraceSyscall(tr.leader, 0); err != nil {
		return err
	}
	return tr.follow()
}

func (tr *tracer) follow() error {
	for {
		var ws syscall.WaitStatus
		// Only this thread's tracees: other children are other tests'.
		pid, err := syscall.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case ws.Exited() || ws.Signaled():
			if pid == tr.leader {
				tr.status = ws
			}
			continue
		}
		signal := 0
		switch {
		case ws.StopSignal() == syscall.SIGTRAP|0x80:
			err = tr.stop(pid)
		case ws.StopSignal() != syscall.SIGTRAP && ws.StopSignal() != syscall.SIGSTOP:
			signal = int(ws.StopSignal())
		}
		if err == nil {
			err = syscall.PtraceSyscall(pid, signal)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) { // it may have been killed meanwhile
			return err
		}
	}
}

// stop looks at a thread that enters or leaves a system call.
func (tr *tracer) stop(pid int) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	tr.inCall[pid] = !tr.inCall[pid]
	if tr.inCall[pid] {
		return tr.enter(pid, &regs)
	}
	if !tr.faulty[pid] {
		return nil
	}
	delete(tr.faulty, pid)
	if tr.fault == killAfter {
		return syscall.Kill(tr.leader, syscall.SIGKILL)
	}
	failed := -int64(syscall.ENOMEM)
	regs.Rax = uint64(failed)
	return syscall.PtraceSetRegs(pid, &regs)
}

func (tr *tracer) enter(pid int, regs *syscall.PtraceRegs) error {
	name, ok := operation(regs)
	if !ok || tr.fault != noFault && tr.fault != failOn && len(tr.operations) > tr.at {
		return nil
	}
	tr.operations = append(tr.operations, name)
	number := len(tr.operations) - 1
	if tr.fault == noFault || number < tr.at {
		return nil
	}
	tr.faulty[pid] = tr.fault != killBefore
	switch tr.fault {
	case killBefore:
		return syscall.Kill(tr.leader, syscall.SIGKILL)
	case hang:
		delete(tr.faulty, pid)
		tr.during()
	case failOnce, failOn:
		regs.Orig_rax = ^uint64(0) // no such call: the kernel does nothing
		return syscall.PtraceSetRegs(pid, regs)
	}
	return nil
}

// operation names a system call by which the plugin changes, or prepares to
// change, something outside of itself.
func operation(regs *syscall.PtraceRegs) (string, bool) {
	const writes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT
	switch regs.Orig_rax {
	case unix.SYS_SOCKET:
		return "socket", regs.Rdi == unix.AF_NETLINK
	case unix.SYS_SETSOCKOPT:
		return "setsockopt", true
	case unix.SYS_SENDTO:
		return "sendto", true
	case unix.SYS_RECVFROM:
		return "recvfrom", true
	case unix.SYS_SETNS:
		return "setns", true
	case unix.SYS_IOCTL:
		return "ioctl", true
	case unix.SYS_OPENAT:
		return "openat", regs.Rdx&writes != 0
	case unix.SYS_MKDIRAT:
		return "mkdirat", true
	case unix.SYS_FTRUNCATE:
		return "ftruncate", true
	case unix.SYS_LINKAT:
		return "linkat", true
	case unix.SYS_PWRITE64:
		return "pwrite64", true
	case unix.SYS_WRITE:
		return "write", regs.Rdx > 8 // shorter ones wake the Go scheduler
	}
	return "", false
}

func (tr trace) String() string { return strings.Join(tr.operations, " ") }
