package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// maxDumps is how often an interrupted dump is started again.
const maxDumps = 10

// A conn is a netlink socket in the table's namespace, for one call.
type conn struct {
	sockets map[int]*nl.SocketHandle
}

// do runs f on a thread inside the namespace, with a socket and the table's id.
// A call opens its own socket, so a namespace that was made anew is found, and
// a deleted one is not kept alive.
func (t *Table) do(ctx context.Context, op string, f func(c *conn, table uint32) error) error {
	op = t.describe(op)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return failure(op, inside(t.config.Namespace, func() error {
		c, err := open(ctx, t.config.Timeout)
		if err != nil {
			return err
		}
		defer c.close()
		table, err := t.tableID()
		if err != nil {
			return err
		}
		return f(c, table)
	}))
}

// describe adds to an operation which table it is about.
func (t *Table) describe(op string) string {
	switch {
	case t.config.VRF != "":
		op += " of VRF " + t.config.VRF
	case t.config.Table != 0:
		op += fmt.Sprintf(" of table %d", t.config.Table)
	default:
		op += " of table main"
	}
	if t.config.Namespace != "" {
		op += " in " + t.config.Namespace
	}
	return op
}

// inside runs f on a thread in the network namespace at a path. The thread ends
// with f: it is never handed back to the runtime from a foreign namespace.
func inside(path string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// /proc/self means the main thread, which must stay where it is.
			defer runtime.UnlockOSThread()
			done <- inside(path, f)
			return
		}
		if err := enter(path); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func enter(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// open opens a socket in the current thread's namespace.
func open(ctx context.Context, timeout time.Duration) (*conn, error) {
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	c := &conn{sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}
	if err := c.prepare(ctx, socket, timeout); err != nil {
		c.close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return c, nil
}

func (c *conn) close() { c.sockets[unix.NETLINK_ROUTE].Close() }

func (c *conn) prepare(ctx context.Context, socket *nl.NetlinkSocket, timeout time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(deadline)), time.Millisecond)
	}
	tv := unix.NsecToTimeval(timeout.Nanoseconds())
	return errors.Join(
		socket.SetSendTimeout(&tv),
		socket.SetReceiveTimeout(&tv),
		// The kernel then filters dumps by table.
		unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1),
	)
}

// request builds a message of a kind from a header and attributes.
func (c *conn) request(kind, flags int, parts ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = c.sockets
	for _, part := range parts {
		req.AddData(part)
	}
	return req
}

// send has the kernel act on a message and waits for its answer, which holds the
// kernel's own words for why it refuses. They are asked for here only, because
// nl misreads them, and panics, where the kernel refuses a dump.
func (c *conn) send(kind, flags int, parts ...nl.NetlinkRequestData) error {
	socket := c.sockets[unix.NETLINK_ROUTE].Socket
	if err := socket.SetExtAck(true); err != nil {
		return err
	}
	_, err := c.request(kind, flags|unix.NLM_F_ACK, parts...).Execute(unix.NETLINK_ROUTE, 0)
	return errors.Join(err, socket.SetExtAck(false))
}

// dump returns all messages of a kind that the kernel holds.
func (c *conn) dump(ask, kind int, parts ...nl.NetlinkRequestData) (messages [][]byte, err error) {
	err = uninterrupted(func() (err error) {
		messages, err = c.request(ask, unix.NLM_F_DUMP, parts...).Execute(unix.NETLINK_ROUTE, uint16(kind))
		return err
	})
	return messages, err
}

// uninterrupted runs a dump until nothing changed while it ran. What an
// interrupted dump returned may lack entries and is never used.
func uninterrupted(dump func() error) (err error) {
	for range maxDumps {
		err = dump()
		if !errors.Is(err, nl.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return fmt.Errorf("the kernel's answer changed under each of %d dumps: %w", maxDumps, err)
}

// families are those that the kernel of this process forwards.
func families() []vpc.Family {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return []vpc.Family{vpc.IPv4}
	}
	return []vpc.Family{vpc.IPv4, vpc.IPv6}
}
