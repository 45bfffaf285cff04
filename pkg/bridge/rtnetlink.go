package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// This file speaks rtnetlink(7). A library would do, but none in reach can say
// what is needed here (names in a property list, bridge netfilter, several
// settings of a link in one message, a dump of one bridge's ports), and a third
// of the time of a short process would go into it: twenty look-ups, process
// included, took 1.5 times as long with github.com/vishvananda/netlink as with
// the calls below.

// native is the byte order of netlink messages: the machine's.
var native = binary.NativeEndian

// A conn is an rtnetlink socket. It stays in the network namespace in which it
// was opened, whatever its user's thread does later.
type conn struct {
	fd  int
	seq uint32
	buf []byte
}

// receiveBuffer is the size the kernel fills with one part of a dump at most
// (netlink_recvmsg in net/netlink/af_netlink.c).
const receiveBuffer = 32 << 10

// dial opens a conn in the calling thread's network namespace.
func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK, unix.NETLINK_GET_STRICT_CHK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil {
			_ = unix.Close(fd)
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	return &conn{fd: fd, buf: make([]byte, receiveBuffer)}, nil
}

func (c *conn) Close() error { return unix.Close(c.fd) }

// do sends a request and waits for the kernel's verdict.
func (c *conn) do(m *message) error {
	_, err := c.exchange(m, unix.NLM_F_ACK)
	return err
}

// get sends a request and returns the one object it asks for.
func (c *conn) get(m *message) ([]byte, error) {
	found, err := c.exchange(m, 0)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d answers to a request for one object", len(found))
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// dumpTries is how often an interrupted dump is begun anew.
const dumpTries = 10

// dump sends a request for all objects of a kind and returns them. A dump that
// was interrupted by a change, so that it may have missed something, is
// repeated.
func (c *conn) dump(m *message) ([][]byte, error) {
	for range dumpTries {
		found, err := c.exchange(m, unix.NLM_F_DUMP)
		if !errors.Is(err, errInterrupted) {
			return found, err
		}
	}
	return nil, errInterrupted
}

func (c *conn) exchange(m *message, flags uint16) ([][]byte, error) {
	c.seq++
	if err := unix.Sendto(c.fd, m.bytes(flags|unix.NLM_F_REQUEST, c.seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	var a answer
	for !a.complete {
		n, err := c.receive()
		if err != nil {
			return nil, err
		}
		if err := a.add(c.buf[:n], c.seq); err != nil {
			return nil, err
		}
	}
	if a.interrupted {
		return nil, errInterrupted
	}
	return a.objects, nil
}

func (c *conn) receive() (int, error) {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
}

// An answer collects the parts of the kernel's reply to one request.
type answer struct {
	objects     [][]byte
	complete    bool
	interrupted bool
}

// add takes one datagram; seq is that of the request, and parts of the reply to
// another one are passed over.
func (a *answer) add(b []byte, seq uint32) error {
	for len(b) >= unix.SizeofNlMsghdr {
		size, kind := int(native.Uint32(b)), native.Uint16(b[4:])
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return errMalformed
		}
		flags, body := native.Uint16(b[6:]), b[unix.SizeofNlMsghdr:size]
		if native.Uint32(b[8:]) == seq {
			if err := a.addPart(kind, flags, body); err != nil {
				return err
			}
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

func (a *answer) addPart(kind, flags uint16, body []byte) error {
	a.interrupted = a.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
	switch kind {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		a.complete = true
		return verdict(body, flags)
	case unix.NLMSG_NOOP, unix.NLMSG_OVERRUN:
		return nil
	}
	a.complete = flags&unix.NLM_F_MULTI == 0
	a.objects = append(a.objects, append([]byte(nil), body...))
	return nil
}

// verdict reads the error in the final part of a reply, with the kernel's own
// words where it gives any.
func verdict(body []byte, flags uint16) error {
	if len(body) < 4 || native.Uint32(body) == 0 {
		return nil
	}
	err := error(unix.Errno(-int32(native.Uint32(body))))
	if flags&unix.NLM_F_ACK_TLVS == 0 || len(body) < 4+unix.SizeofNlMsghdr {
		return err
	}
	for kind, v := range attributes(body[4+unix.SizeofNlMsghdr:]) {
		if kind == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w: %s", err, text(v))
		}
	}
	return err
}

// A message is a request under construction.
type message struct {
	kind  uint16
	flags uint16
	body  []byte
}

func (m *message) bytes(flags uint16, seq uint32) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(m.body))
	native.PutUint32(b, uint32(unix.SizeofNlMsghdr+len(m.body)))
	native.PutUint16(b[4:], m.kind)
	native.PutUint16(b[6:], m.flags|flags)
	native.PutUint32(b[8:], seq)
	return append(b, m.body...)
}

// linkMessage starts a message about a link; index 0 leaves it to a name.
func linkMessage(kind, flags uint16, index int) *message {
	m := &message{kind: kind, flags: flags, body: make([]byte, unix.SizeofIfInfomsg)}
	native.PutUint32(m.body[4:], uint32(index))
	return m
}

// up asks for the link to be up.
func (m *message) up() *message {
	native.PutUint32(m.body[8:], unix.IFF_UP)
	native.PutUint32(m.body[12:], unix.IFF_UP)
	return m
}

func (m *message) attr(kind uint16, v []byte) *message {
	m.body = native.AppendUint16(m.body, uint16(unix.SizeofRtAttr+len(v)))
	m.body = native.AppendUint16(m.body, kind)
	m.body = append(m.body, v...)
	m.body = append(m.body, make([]byte, align(len(v))-len(v))...)
	return m
}

func (m *message) attrText(kind uint16, v string) *message {
	return m.attr(kind, append([]byte(v), 0))
}

func (m *message) attr8(kind uint16, v uint8) *message { return m.attr(kind, []byte{v}) }

func (m *message) attr32(kind uint16, v uint32) *message {
	return m.attr(kind, native.AppendUint32(nil, v))
}

// nest adds an attribute whose value is what fill adds.
func (m *message) nest(kind uint16, fill func()) *message {
	start := len(m.body)
	m.attr(kind|unix.NLA_F_NESTED, nil)
	fill()
	native.PutUint16(m.body[start:], uint16(len(m.body)-start))
	return m
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// attributes yields the type and value of each attribute in b, up to the first
// malformed one.
func attributes(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(native.Uint16(b))
			if size < unix.SizeofRtAttr || size > len(b) {
				return
			}
			kind := native.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// text is the string in an attribute, without its final zero byte.
func text(v []byte) string { return strings.TrimRight(string(v), "\x00") }

func number8(v []byte) uint8 {
	if len(v) < 1 {
		return 0
	}
	return v[0]
}

func number32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return native.Uint32(v)
}
