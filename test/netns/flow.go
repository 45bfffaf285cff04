package netns

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
)

// A Flow is a TCP connection that is kept busy.
type Flow struct {
	conn  *Conn
	turns atomic.Int64
	stop  chan struct{}
	done  chan error
}

// turnTime is how long one message may take there and back before the flow
// counts as broken: long beside any hiccup of a busy machine.
const turnTime = 10 * time.Second

// StartFlow connects a host to the server at an address and has the two
// exchange messages over that one connection until Stop.
func StartFlow(ctx context.Context, from *Host, to netip.Addr) (*Flow, error) {
	conn, err := Dial(ctx, from.Namespace, to)
	if err != nil {
		return nil, err
	}
	f := &Flow{conn: conn, stop: make(chan struct{}), done: make(chan error, 1)}
	go f.run()
	return f, nil
}

// Turns is how many messages have gone there and back so far.
func (f *Flow) Turns() int64 { return f.turns.Load() }

// Stop ends the flow. It fails when the connection broke before.
func (f *Flow) Stop() error {
	close(f.stop)
	defer f.conn.Close()
	return <-f.done
}

func (f *Flow) run() {
	f.done <- func() error {
		for {
			select {
			case <-f.stop:
				return nil
			case <-time.After(time.Millisecond):
			}
			message := fmt.Appendf(nil, "message %d\n", f.turns.Load())
			if err := f.conn.Echo(message, turnTime); err != nil {
				return fmt.Errorf("flow from %s to %s, after %d messages: %w",
					f.conn.LocalAddr(), f.conn.RemoteAddr(), f.turns.Load(), err)
			}
			f.turns.Add(1)
		}
	}()
}
