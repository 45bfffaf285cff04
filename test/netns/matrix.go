package netns

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Cell is what one host got when it asked another.
type Cell struct {
	From, To *Host
	// Network is "tcp" or "udp".
	Network string
	Sight   Sight
	// Err is why there is no Sight.
	Err error
}

const (
	// probes bounds how many questions are under way at once.
	probes = 64
	// patience is how long a question is asked where an answer is expected,
	// silence where none is: long enough for many a round trip, and an answer
	// that comes later on a busy machine hides a fault but never invents one.
	patience = time.Minute
	silence  = 500 * time.Millisecond
)

// Matrix has every host ask every host, itself too, over TCP and UDP in the
// family that like belongs to. Cells are in the order from, to, network. What is
// expected decides only how long a question waits for its answer.
func Matrix(ctx context.Context, hosts []*Host, like netip.Addr, expect func(from, to *Host) bool) []Cell {
	var cells []Cell
	for _, from := range hosts {
		for _, to := range hosts {
			cells = append(cells, Cell{From: from, To: to, Network: "tcp"}, Cell{From: from, To: to, Network: "udp"})
		}
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, probes)
	for i := range cells {
		slots <- struct{}{}
		running.Go(func() {
			cells[i].ask(ctx, like, expect)
			<-slots
		})
	}
	running.Wait()
	return cells
}

func (c *Cell) ask(ctx context.Context, like netip.Addr, expect func(from, to *Host) bool) {
	wait := silence
	if expect(c.From, c.To) {
		wait = patience
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c.Sight, c.Err = Ask(ctx, c.From.Namespace, c.Network, c.To.Address(like))
}

// Expect says who can reach whom when exactly the podCIDRs of these nodes have
// a route: every packet crosses to another node, there and back, by the route
// of the pod it is for.
func Expect(routed ...*Node) func(from, to *Host) bool {
	return func(from, to *Host) bool {
		if from.Node == to.Node {
			return true
		}
		return (from.isNode() || slices.Contains(routed, from.Node)) && (to.isNode() || slices.Contains(routed, to.Node))
	}
}

func (h *Host) isNode() bool { return h == &h.Node.Host }

// owns is true for the host's own addresses, those of a node's pod bridge among
// them.
func (h *Host) owns(a netip.Addr) bool {
	return slices.Contains(h.Addresses, a) || h.isNode() && slices.Contains(h.Node.Gateways(), a)
}

// Judge compares what hosts got with what is expected, and the addresses that
// were seen with the senders' own: a packet that reached its receiver under
// another address was translated on the way.
func Judge(cells []Cell, expect func(from, to *Host) bool) []error {
	var wrong []error
	for _, c := range cells {
		switch want := expect(c.From, c.To); {
		case want && c.Err != nil:
			wrong = append(wrong, fmt.Errorf("%s does not reach %s over %s: %w", c.From.Name, c.To.Name, c.Network, c.Err))
		case !want && c.Err == nil:
			wrong = append(wrong, fmt.Errorf("%s reaches %s over %s, seen as %s", c.From.Name, c.To.Name, c.Network, c.Sight.Seen))
		case want && !c.Own():
			wrong = append(wrong, fmt.Errorf("%s reaches %s over %s under a strange address: sent from %s, seen as %s",
				c.From.Name, c.To.Name, c.Network, c.Sight.Sent, c.Sight.Seen))
		}
	}
	return wrong
}

// Own is true when the receiver saw an address of the sender's own, the very
// one that the packet was sent from.
func (c Cell) Own() bool {
	return c.Err == nil && c.Sight.Seen == c.Sight.Sent && c.From.owns(c.Sight.Seen)
}
