package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ownNamespace is the network namespace of the thread that opens it.
const ownNamespace = "/proc/thread-self/ns/net"

// A pod is the interface inside a pod's network namespace.
type pod struct {
	name      string
	mac       net.HardwareAddr
	addresses []Address
	routes    []Route
}

// openNamespace opens a network namespace. The error is ErrNamespace when the
// path is not that of a pod's, and another one when that could not be found out.
func openNamespace(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%w: %w", ErrNamespace, err)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if err := checkNamespace(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkNamespace(f *os.File) error {
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if errors.Is(err, unix.ENOTTY) || err == nil && kind != unix.CLONE_NEWNET {
		return fmt.Errorf("%w: %s is not a network namespace", ErrNamespace, f.Name())
	}
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", f.Name(), err)
	}
	if sameFile(f, ownNamespace) {
		return fmt.Errorf("%w: %s is the node's own", ErrNamespace, f.Name())
	}
	return nil
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	b, errB := os.Stat(path)
	return err == nil && errB == nil && os.SameFile(a, b)
}

// within runs f in a network namespace, on the calling thread, and brings that
// back. A thread that cannot be brought back stays with the caller alone: it
// must not run anything else.
func within(ns *os.File, f func() error) (err error) {
	runtime.LockOSThread()
	own, err := unix.Open(ownNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return &os.PathError{Op: "open", Path: ownNamespace, Err: err}
	}
	defer func() { _ = unix.Close(own) }()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
	}
	defer func() {
		if backErr := unix.Setns(own, unix.CLONE_NEWNET); backErr != nil {
			err = errors.Join(err, fmt.Errorf("come back from network namespace %s: %w", ns.Name(), backErr))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// configure brings the pod's end of a new port to life.
func (p pod) configure(ns *os.File) error {
	return within(ns, func() error {
		c, err := dial()
		if err != nil {
			return fmt.Errorf("open rtnetlink: %w", err)
		}
		defer c.Close()
		return p.apply(c)
	})
}

func (p pod) apply(c *conn) error {
	l, err := c.linkByName(p.name)
	if err != nil {
		return fmt.Errorf("look up: %w", err)
	}
	// Address generation is switched off before the interface comes up, since
	// the kernel makes addresses at that very moment.
	m := linkMessage(unix.RTM_NEWLINK, 0, l.index).noAddrGen()
	if !bytes.Equal(l.mac, p.mac) {
		m.attr(unix.IFLA_ADDRESS, p.mac)
	}
	if err := c.do(m); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if err := c.do(linkMessage(unix.RTM_NEWLINK, 0, l.index).up()); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	for _, a := range p.addresses {
		if err := p.addAddress(c, l.index, a); err != nil {
			return err
		}
	}
	for _, r := range p.routes {
		if err := c.addRoute(route{r.Dst, r.GW, l.index}); err != nil {
			return err
		}
	}
	return nil
}

// addAddress adds an address and, in IPv6, the link-local one that goes with
// every interface. Runtimes switch IPv6 off in new namespaces; a pod that is to
// have an address gets it switched on.
func (p pod) addAddress(c *conn, index int, a Address) error {
	err := c.addAddress(index, a.Prefix)
	if a.Prefix.Addr().Is4() {
		return err
	}
	if errors.Is(err, unix.EACCES) {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+p.name+"/disable_ipv6", []byte("0"), 0); err != nil {
			return fmt.Errorf("switch IPv6 on: %w", err)
		}
		err = c.addAddress(index, a.Prefix)
	}
	if err != nil {
		return err
	}
	return c.addAddress(index, linkLocal(p.mac))
}
