package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// dialPatience is how long a connection may take: routes and neighbours are
// there before traffic starts.
const dialPatience = 5 * time.Second

// connect returns the two sides of a TCP connection over a shape.
func connect(s shape) (client, server net.Conn, err error) {
	var l net.Listener
	if err := s.to.ns.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(s.to.address, 0).String())
		return err
	}); err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if err := s.from.ns.Do(func() (err error) {
		client, err = net.DialTimeout("tcp", l.Addr().String(), dialPatience)
		return err
	}); err != nil {
		return nil, nil, err
	}
	if server, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	seen, _ := netip.ParseAddrPort(server.RemoteAddr().String())
	if seen.Addr() != s.from.address {
		err = fmt.Errorf("%s was seen as %s: its packets are translated on the way", s.from.address, seen.Addr())
		return nil, nil, errors.Join(err, client.Close(), server.Close())
	}
	return client, server, nil
}

// throughput sends as much as goes in some time over one connection, in MiB/s as
// the receiver counts them.
func throughput(s shape, turn time.Duration) (float64, error) {
	client, server, err := connect(s)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	defer server.Close()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		block := make([]byte, 256<<10)
		for {
			if _, err := client.Write(block); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 256<<10)
	read := func(d time.Duration) (bytes int64, err error) {
		if err := server.SetReadDeadline(time.Now().Add(d)); err != nil {
			return 0, err
		}
		for {
			n, err := server.Read(buffer)
			bytes += int64(n)
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return bytes, nil
			}
			if err != nil {
				return bytes, err
			}
		}
	}
	if _, err := read(turn / 5); err != nil { // until the window is open
		return 0, err
	}
	start := time.Now()
	bytes, err := read(turn)
	if err != nil {
		return 0, err
	}
	rate := float64(bytes) / (1 << 20) / time.Since(start).Seconds()
	_ = client.Close()
	<-stopped
	return rate, nil
}

// requests sends a byte and waits for it to come back, over and over for some
// time over one connection, and returns the time of each turn.
func requests(s shape, turn time.Duration) ([]time.Duration, error) {
	client, server, err := connect(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	echoed := make(chan error, 1)
	go func() {
		_, err := io.Copy(server, server)
		echoed <- errors.Join(err, server.Close())
	}()
	var took []time.Duration
	one := make([]byte, 1)
	for end := time.Now().Add(turn); time.Now().Before(end); {
		start := time.Now()
		if _, err := client.Write(one); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(client, one); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, errors.Join(client.Close(), <-echoed)
}
