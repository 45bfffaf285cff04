package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPrefix = "vpcroute-runtime-"
)

// mountCgroups mounts the kernel's cgroup hierarchies over the sandbox's empty
// /sys/fs/cgroup, once per process, and returns their mount points. Which ones
// there are is in /proc/self/cgroup, see cgroups(7).
var mountCgroups = sync.OnceValues(func() ([]string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	hierarchies := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(hierarchies) == 1 && strings.HasPrefix(hierarchies[0], "0::") {
		return []string{cgroupRoot}, unix.Mount("cgroup2", cgroupRoot, "cgroup2", 0, "")
	}
	if err := unix.Mount("tmpfs", cgroupRoot, "tmpfs", 0, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount a tmpfs at %s: %w", cgroupRoot, err)
	}
	var points []string
	for _, h := range hierarchies {
		controllers := strings.SplitN(h, ":", 3)[1]
		if controllers == "" {
			continue // version 2 beside version 1: it has no controller of its own that counts
		}
		name, options := strings.TrimPrefix(controllers, "name="), controllers
		if name != controllers {
			options = "none," + controllers
		}
		point := filepath.Join(cgroupRoot, name)
		if err := os.Mkdir(point, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount("cgroup", point, "cgroup", 0, options); err != nil {
			return nil, fmt.Errorf("mount cgroup hierarchy %s: %w", controllers, err)
		}
		points = append(points, point)
	}
	return points, nil
})

// A cgroup is a node's own parent of its pods' cgroups, one directory per
// hierarchy. Each is locked as long as this process lives, which tells a cgroup
// in use from one that a killed test run has left behind: unlike all else that a
// node makes, cgroups outlive the sandbox.
type cgroup struct {
	// Name is the path below each hierarchy's root, with a slash before it.
	Name string

	dirs  []string
	locks []*os.File
}

func newCgroup() (*cgroup, error) {
	points, err := mountCgroups()
	if err != nil {
		return nil, err
	}
	// Without this lock another process could sweep a directory away between its
	// being made and its being locked.
	root, err := lockDir(points[0], unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", points[0], err)
	}
	defer root.Close()
	if err := sweep(points); err != nil {
		return nil, err
	}
	first, err := os.MkdirTemp(points[0], cgroupPrefix)
	if err != nil {
		return nil, err
	}
	c := &cgroup{Name: "/" + filepath.Base(first)}
	for _, point := range points {
		dir := filepath.Join(point, c.Name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		lock, err := lockDir(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		c.dirs, c.locks = append(c.dirs, dir), append(c.locks, lock)
	}
	return c, nil
}

// Children are the cgroups of the node's pods, in all hierarchies.
func (c *cgroup) Children() ([]string, error) {
	var all []string
	for _, dir := range c.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				all = append(all, filepath.Join(dir, e.Name()))
			}
		}
	}
	return all, nil
}

// Clear removes all below the cgroup. No process may be left in it.
func (c *cgroup) Clear() error {
	children, err := c.Children()
	for _, dir := range children {
		err = errors.Join(err, removeCgroup(dir))
	}
	return err
}

// Remove removes the cgroup and all below it. No process may be left in it.
func (c *cgroup) Remove() error {
	var errs []error
	for i, dir := range c.dirs {
		errs = append(errs, removeCgroup(dir), c.locks[i].Close())
	}
	return errors.Join(errs...)
}

// sweep removes the cgroups of test runs that were killed.
func sweep(points []string) error {
	for _, point := range points {
		stale, err := filepath.Glob(filepath.Join(point, cgroupPrefix+"*"))
		if err != nil {
			return err
		}
		for _, dir := range stale {
			lock, err := lockDir(dir, unix.LOCK_EX|unix.LOCK_NB)
			if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("lock %s: %w", dir, err)
			}
			if err := errors.Join(removeCgroup(dir), lock.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

func lockDir(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeCgroup removes directories alone: the files in a cgroup go with it.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
