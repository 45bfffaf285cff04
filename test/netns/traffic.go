package netns

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// Port is the TCP and UDP port that every host serves on.
const Port = 7000

// Servers answer on every address of some hosts. To whoever asks they first
// tell, on one line, the address they see the question come from; then they
// send back what they are sent. They stop when closed.
type Servers struct {
	closers []io.Closer
}

// Serve starts servers on the addresses of hosts.
func Serve(hosts ...*Host) (*Servers, error) {
	s := &Servers{}
	for _, h := range hosts {
		for _, a := range h.Addresses {
			if err := s.serve(h.Namespace, netip.AddrPortFrom(a, Port)); err != nil {
				_ = s.Close()
				return nil, fmt.Errorf("serve on %s: %w", h.Name, err)
			}
		}
	}
	return s, nil
}

// serve binds one address for TCP and UDP. A socket stays in the namespace that
// it was made in, so the goroutines that use it need not enter it.
func (s *Servers) serve(ns *sandbox.Namespace, at netip.AddrPort) error {
	return ns.Do(func() error {
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		s.closers = append(s.closers, listener)
		go answerTCP(listener)
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		s.closers = append(s.closers, conn)
		go answerUDP(conn)
		return nil
	})
}

// Close stops the servers.
func (s *Servers) Close() error {
	for _, c := range s.closers {
		_ = c.Close()
	}
	return nil
}

func answerTCP(listener *net.TCPListener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			defer conn.Close()
			if _, err := fmt.Fprintln(conn, seen(conn.RemoteAddr())); err == nil {
				_, _ = io.Copy(conn, conn)
			}
		}()
	}
}

func answerUDP(conn *net.UDPConn) {
	question := make([]byte, 64<<10)
	for {
		n, peer, err := conn.ReadFromUDPAddrPort(question)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an earlier answer could not be delivered
		}
		answer := append([]byte(peer.Addr().Unmap().String()+"\n"), question[:n]...)
		_, _ = conn.WriteToUDPAddrPort(answer, peer)
	}
}

func seen(a net.Addr) netip.Addr {
	p, _ := netip.ParseAddrPort(a.String())
	return p.Addr().Unmap()
}

// A Sight is what one question showed.
type Sight struct {
	// Sent is the address that the asking socket had, Seen the one that the
	// server saw. They differ exactly when something on the way translated.
	Sent, Seen netip.Addr
}

// resendInterval is how often a UDP question is asked again.
const resendInterval = 200 * time.Millisecond

// Ask asks the server at an address, over "tcp" or "udp", from inside a
// namespace, until it answers or ctx ends.
func Ask(ctx context.Context, from *sandbox.Namespace, network string, to netip.Addr) (Sight, error) {
	if network == "udp" {
		return askUDP(ctx, from, to)
	}
	conn, err := Dial(ctx, from, to)
	if err != nil {
		return Sight{}, err
	}
	defer conn.Close()
	return conn.Sight, nil
}

func askUDP(ctx context.Context, from *sandbox.Namespace, to netip.Addr) (Sight, error) {
	conn, err := dial(ctx, from, "udp", to)
	if err != nil {
		return Sight{}, err
	}
	defer conn.Close()
	answer := make([]byte, 64<<10)
	for {
		// A refusal by a router shows up as an error of either call.
		_, err := conn.Write([]byte("who am I"))
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(resendInterval))
			var n int
			if n, err = conn.Read(answer); err == nil {
				return sight(conn, string(answer[:n]))
			}
		}
		if !sleep(ctx, err) {
			return Sight{}, fmt.Errorf("ask %s: %w", to, err)
		}
	}
}

// sleep waits a little before another try, unless the failure was to wait long
// enough already. It is false when ctx leaves no time for one.
func sleep(ctx context.Context, err error) bool {
	pause := resendInterval
	if errors.Is(err, os.ErrDeadlineExceeded) {
		pause = 0
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}

// A Conn is a TCP connection to a server that has told what it sees.
type Conn struct {
	net.Conn
	// Sight is what the server saw of the connection.
	Sight Sight
	lines *bufio.Reader
}

// Dial connects to the server at an address from inside a namespace, trying
// again until ctx ends.
func Dial(ctx context.Context, from *sandbox.Namespace, to netip.Addr) (*Conn, error) {
	for {
		conn, err := dial(ctx, from, "tcp", to)
		if err == nil {
			return greet(ctx, conn)
		}
		if !sleep(ctx, err) {
			return nil, err
		}
	}
}

func dial(ctx context.Context, from *sandbox.Namespace, network string, to netip.Addr) (conn net.Conn, err error) {
	at := netip.AddrPortFrom(to, Port).String()
	err = from.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, at)
		return err
	})
	return conn, err
}

// greet reads the line that a server begins with.
func greet(ctx context.Context, conn net.Conn) (*Conn, error) {
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	c := &Conn{Conn: conn, lines: bufio.NewReader(conn)}
	line, err := c.lines.ReadString('\n')
	if err == nil {
		c.Sight, err = sight(conn, line)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s accepted but did not say who it sees: %w", conn.RemoteAddr(), err)
	}
	return c, nil
}

func sight(conn net.Conn, answer string) (Sight, error) {
	line, _, _ := strings.Cut(answer, "\n")
	address, err := netip.ParseAddr(line)
	if err != nil {
		return Sight{}, fmt.Errorf("answer %q: %w", line, err)
	}
	return Sight{Sent: seen(conn.LocalAddr()), Seen: address}, nil
}

// Echo sends data and reads it back while sending, within a time. It fails
// unless every byte came back as it was sent.
func (c *Conn) Echo(data []byte, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- err
	}()
	back := make([]byte, len(data))
	n, err := io.ReadFull(c.lines, back)
	if err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, len(data), err)
	}
	if !bytes.Equal(back, data) {
		return fmt.Errorf("%d bytes came back changed", len(data))
	}
	return <-sent
}
