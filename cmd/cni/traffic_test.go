package main_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// peerSeen connects from one namespace to an address in another over TCP and
// returns the peer's address as the server there sees it.
func peerSeen(t testing.TB, from, to *sandbox.Namespace, address netip.Addr) netip.Addr {
	t.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	}); err != nil {
		t.Fatalf("listen on %s in %s: %v", address, to.Name, err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, c.RemoteAddr().String())
			c.Close()
		}
	}()
	var seen []byte
	err := from.Do(func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		seen, err = io.ReadAll(c)
		return err
	})
	if err != nil {
		t.Fatalf("%s cannot reach %s in %s: %v", from.Name, address, to.Name, err)
	}
	return netip.MustParseAddrPort(string(seen)).Addr()
}
