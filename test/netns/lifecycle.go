package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

const (
	boxName      = "vpcbox" // boxes are vpcbox1, vpcbox2, …
	namespaceDir = "/run/netns"
	// markEnv marks the processes of a box: its value is the box's directory.
	markEnv = "VPCBOX"
	// Empty files in a box's directory: keptMark in that of a kept box, firstMark
	// in that of one for which namespaceDir had to be made.
	keptMark  = "kept"
	firstMark = "first"
	// graceTime is how long a process gets to end on SIGTERM.
	graceTime = 5 * time.Second
)

// claim takes the first free box name for b.
func (b *Box) claim(parent string) error {
	for i := 1; ; i++ {
		b.Name = boxName + strconv.Itoa(i)
		b.Dir = filepath.Join(parent, b.Name)
		err := b.take()
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// take makes and locks the box's directory and creates the router's namespace;
// each can succeed only once for a name. It fails with fs.ErrExist when another
// has the name. The kernel frees the lock when the process ends, however it ends.
func (b *Box) take() (err error) {
	taken, err := namespacesOf(b.Name)
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		return fs.ErrExist
	}
	if err := os.Mkdir(b.Dir, 0o700); err != nil {
		return fmt.Errorf("make the box's directory: %w", err)
	}
	b.lock, err = lockDir(b.Dir)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return fs.ErrExist // somebody removes it as left behind, being quicker than the lock
	}
	if err == nil {
		err = b.markFirst()
	}
	if err == nil {
		b.Router, err = b.namespace("vpc")
	}
	if err != nil {
		_ = os.RemoveAll(b.Dir)
	}
	return err
}

// markFirst notes whether namespaceDir comes with this box, to go with it.
func (b *Box) markFirst() error {
	if _, err := os.Lstat(namespaceDir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(b.Dir, firstMark), nil, 0o644)
}

// lockDir locks a directory without waiting. It fails with EWOULDBLOCK when
// another holds it and with fs.ErrNotExist when it is gone.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	locked, err := f.Stat()
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Lstat(dir); err == nil && !os.SameFile(locked, there) {
			err = fs.ErrNotExist
		}
	}
	if err == nil && locked.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		err = fmt.Errorf("%s is another user's", dir)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Keep leaves the box as it is when its process ends, until somebody calls
// TearDown on its directory.
func (b *Box) Keep() error {
	if err := os.WriteFile(filepath.Join(b.Dir, keptMark), nil, 0o644); err != nil {
		return err
	}
	return b.lock.Close()
}

// TearDown removes the box: its processes, namespaces and files. What is gone
// already is no error, the whole box included.
func (b *Box) TearDown() error {
	if b.lock == nil {
		return nil // the name may be another box's by now
	}
	err := TearDown(b.Dir)
	_ = b.lock.Close()
	b.lock = nil
	return err
}

// Boxes lists the directories of this user's boxes under parent (os.TempDir()
// when empty): those that were kept, and those that an interrupted process left
// behind. Boxes at work are neither.
func Boxes(parent string) (kept, left []string, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	dirs, err := filepath.Glob(filepath.Join(parent, boxName+"[0-9]*"))
	if err != nil {
		return nil, nil, err
	}
	for _, dir := range dirs {
		lock, err := lockDir(dir)
		if err != nil {
			continue // at work, another user's, or gone meanwhile
		}
		if _, err := os.Lstat(filepath.Join(dir, keptMark)); err == nil {
			kept = append(kept, dir)
		} else {
			left = append(left, dir)
		}
		_ = lock.Close()
	}
	return kept, left, nil
}

// TearDown removes the box in a directory, whoever raised it and whatever of it
// is left.
func TearDown(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := endProcesses(dir)
	names, listErr := namespacesOf(filepath.Base(dir))
	err = errors.Join(err, listErr)
	for _, name := range names {
		if e := (&sandbox.Namespace{Name: name}).Delete(); e != nil {
			err = errors.Join(err, fmt.Errorf("remove namespace %s: %w", name, e))
		}
	}
	if _, e := os.Lstat(filepath.Join(dir, firstMark)); e == nil {
		_ = os.Remove(namespaceDir) // stays while others use it
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// namespacesOf names the namespaces of a box.
func namespacesOf(box string) ([]string, error) {
	entries, err := os.ReadDir(namespaceDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), box+"-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// endProcesses ends the processes of a box, politely first.
func endProcesses(dir string) error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		deadline := time.Now().Add(graceTime)
		for _, pid := range processesOf(dir) {
			_ = syscall.Kill(pid, signal) // gone meanwhile is as good
		}
		for len(processesOf(dir)) > 0 && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	if pids := processesOf(dir); len(pids) > 0 {
		return fmt.Errorf("processes %v of %s do not end", pids, dir)
	}
	return nil
}

// processesOf finds the processes that carry the box's mark. A process that has
// ended but was not waited for has no environment any more.
func processesOf(dir string) []int {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), mark(dir)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mark is the environment entry of the processes of a box.
func mark(dir string) string { return markEnv + "=" + dir }
