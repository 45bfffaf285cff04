package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/bench/report"
	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/netns"
)

// A plan says how much is measured.
type plan struct {
	rounds int
	turn   time.Duration
}

// A sample is what one turn of a shape came to.
type sample struct {
	throughput float64 // MiB/s
	rate       float64 // requests per second
	median     float64 // of a request, in µs
	slow       float64 // of the slowest request in a hundred, in µs
}

// samples are those of each shape, one per round.
type samples map[string][]sample

// Our shape with more in its way: connection tracking, which a node with
// kube-proxy or any stateful firewall has on, and the node's rules for traffic
// that leaves the VPC, which this traffic does not.
const (
	tracked     = ours + ", connections tracked"
	masqueraded = ours + ", masquerade rules"
)

// measure raises the box and has every shape take its turn in every round, so
// that what else the machine does falls on all alike.
func measure(bin string, plan plan, progress io.Writer) (_ []report.Figure, err error) {
	bin, err = absolute(bin, "vpcroute", "ptp", "host-local")
	if err != nil {
		return nil, err
	}
	box, err := netns.Raise(netns.Config{Nodes: 2, Programs: bin})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, box.TearDown()) }()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	shapes, err := raise(ctx, box)
	if err != nil {
		return nil, err
	}
	found := samples{}
	for round := range plan.rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, plan.rounds)
		for _, s := range inTurn(shapes, round) {
			if err := found.take(s, plan.turn); err != nil {
				return nil, err
			}
		}
		for _, more := range []struct {
			name          string
			set, takeBack func(*netns.Node) error
		}{{tracked, track, untrack}, {masqueraded, masquerade, unmasquerade}} {
			if err := found.takeWith(more.name, more.set, more.takeBack, box, shapes, plan.turn); err != nil {
				return nil, fmt.Errorf("%s: %w", more.name, err)
			}
		}
	}
	return found.figures(), nil
}

// inTurn has another shape begin each round.
func inTurn(shapes []shape, round int) []shape {
	first := round % len(shapes)
	return slices.Concat(shapes[first:], shapes[:first])
}

func (found samples) take(s shape, turn time.Duration) error {
	rate, err := throughput(s, turn)
	if err != nil {
		return fmt.Errorf("throughput of %s: %w", s.name, err)
	}
	took, err := requests(s, turn)
	if err != nil {
		return fmt.Errorf("requests over %s: %w", s.name, err)
	}
	slices.Sort(took)
	found[s.name] = append(found[s.name], sample{
		throughput: rate,
		rate:       float64(len(took)) / turn.Seconds(),
		median:     microseconds(took[len(took)/2]),
		slow:       microseconds(took[len(took)*99/100]),
	})
	return nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// takeWith measures our shape with something set on every node, and takes that
// back.
func (found samples) takeWith(name string, set, takeBack func(*netns.Node) error, box *netns.Box, shapes []shape, turn time.Duration) error {
	for _, n := range box.Nodes {
		if err := set(n); err != nil {
			return err
		}
	}
	s := shapes[slices.IndexFunc(shapes, func(s shape) bool { return s.name == ours })]
	s.name = name
	err := found.take(s, turn)
	for _, n := range box.Nodes {
		err = errors.Join(err, takeBack(n))
	}
	return err
}

func track(n *netns.Node) error {
	return in(n.Namespace, `
		nft add table inet tracked
		nft add chain inet tracked forward '{ type filter hook forward priority 0; }'
		nft add rule inet tracked forward ct state established accept`)
}

func untrack(n *netns.Node) error { return in(n.Namespace, "nft delete table inet tracked") }

// masquerade sets the rules with 500 ranges in their lists.
func masquerade(n *netns.Node) error {
	m := node.Masquerade{PodCIDRs: n.PodCIDRs, Bridge: "cbr0", Keep: node.SpecialUse()}
	for i := range 250 {
		m.Keep = append(m.Keep, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(i), 0}), 24))
		m.Exceptions = append(m.Exceptions, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(i), 128}), 25))
	}
	return n.Namespace.Do(func() error {
		rules, err := node.NewNFTables()
		if err == nil {
			_, err = rules.Ensure(m)
		}
		return err
	})
}

func unmasquerade(n *netns.Node) error {
	return n.Namespace.Do(func() error {
		rules, err := node.NewNFTables()
		if err == nil {
			err = rules.Remove()
		}
		return err
	})
}
