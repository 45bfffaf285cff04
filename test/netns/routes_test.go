package netns_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/test/netns"
)

func TestNodeLeaves(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 1)
	control(t, box)
	meet(t, box, box.Nodes...)
	staying := box.Nodes[:2]

	var flows []*netns.Flow
	for _, a := range staying[1].Pods[0].Addresses {
		f, err := netns.StartFlow(t.Context(), &staying[0].Pods[0].Host, a)
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, f)
	}
	tell(t, box, staying[0].Object(), staying[1].Object())
	await(t, box, netns.RoutesTo(staying...)...)
	meet(t, box, staying...)
	for _, f := range flows {
		after := f.Turns()
		eventually(t, func() string {
			if f.Turns() == after {
				return "a flow between the nodes that stayed has stopped"
			}
			return ""
		})
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestRouteFollowsNodeAddress(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 1)
	control(t, box)
	moved := box.Nodes[0]
	if err := box.Readdress(moved, netip.MustParseAddr("172.31.0.77"), netip.MustParseAddr("fd00:172:31::77")); err != nil {
		t.Fatal(err)
	}
	serve(t, &moved.Host)
	tell(t, box, box.Objects()...)
	await(t, box, netns.RoutesTo(box.Nodes...)...)
	meet(t, box, box.Nodes...)
}

// R079: of two Nodes with one podCIDR the holder of the route keeps it.
func TestTwoNodesWithOnePodCIDR(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 1)
	p := control(t, box)
	holder, other, twin := box.Nodes[0], box.Nodes[1], box.Nodes[2].Object()
	twin.PodCIDRs = holder.PodCIDRs
	tell(t, box, holder.Object(), other.Object(), twin)
	await(t, box, netns.RoutesTo(holder, other)...)
	reported(t, p, twin.Name, holder.Name, holder.PodCIDRs[0].String())
	reported(t, p, twin.Name, holder.Name, holder.PodCIDRs[1].String())
	meet(t, box, holder, other)

	// Once the holder is gone the range is the other's.
	tell(t, box, other.Object(), twin)
	want := netns.RoutesTo(other)
	for i, r := range netns.RoutesTo(box.Nodes[2]) {
		want = append(want, netns.Route{Destination: twin.PodCIDRs[i], Via: r.Via})
	}
	await(t, box, want...)
}

// reported waits until the controller has said something about all of these in
// one line.
func reported(t *testing.T, p *netns.Process, words ...string) {
	t.Helper()
	eventually(t, func() string {
		log, err := p.Log()
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(log) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return ""
			}
		}
		return fmt.Sprintf("the controller does not report %q", words)
	})
}

func TestForeignRoutesAreLeftAlone(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 1)
	first, second, last := box.Nodes[0], box.Nodes[1], box.Nodes[2]
	// To a stranger: everything, a range that no node has, and one that is a
	// node's.
	foreign := []netns.Route{
		{Destination: netip.MustParsePrefix("0.0.0.0/0"), Via: first.Addresses[0]},
		{Destination: netip.MustParsePrefix("::/0"), Via: first.Addresses[1]},
		{Destination: netip.MustParsePrefix("10.244.200.0/24"), Via: second.Addresses[0]},
		{Destination: netip.MustParsePrefix("fd00:10:244:200::/64"), Via: second.Addresses[1]},
		{Destination: last.PodCIDRs[0], Via: second.Addresses[0]},
		{Destination: last.PodCIDRs[1], Via: second.Addresses[1]},
	}
	for _, r := range foreign {
		if err := box.Route(r.Destination, r.Via); err != nil {
			t.Fatal(err)
		}
	}
	before := foreignRoutes(t, box)
	tell(t, box, box.Objects()...)
	p, err := box.StartController(nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, box, append(netns.RoutesTo(first, second), foreign...)...)
	for _, r := range foreign[2:] {
		reported(t, p, r.Destination.String(), "onflict")
	}
	for _, r := range foreign[4:] {
		reported(t, p, r.Destination.String(), last.Name)
	}
	meet(t, box, first, second)

	// A controller at work holds the ledger, and would make the routes again.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := box.RunController("cleanup"); err != nil {
		t.Error(err)
	}
	if after := foreignRoutes(t, box); after != before {
		t.Errorf("foreign routes were touched:\n%s\nbefore:\n%s", after, before)
	}
}

// foreignRoutes is the kernel's full text of what was written by hand.
func foreignRoutes(t *testing.T, box *netns.Box) string {
	t.Helper()
	return box.Router.Run(t, "ip", "-4", "route", "show", "proto", "static") + "\n" +
		box.Router.Run(t, "ip", "-6", "route", "show", "proto", "static")
}

// R081: an end of the controller leaves the routes, cleanup takes ours away.
func TestRoutesOutliveTheControllerUntilCleanup(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 1)
	p := control(t, box)
	stranger := netns.Route{Destination: netip.MustParsePrefix("10.244.200.0/24"), Via: box.Nodes[0].Addresses[0]}
	if err := box.Route(stranger.Destination, stranger.Via); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, box, append(netns.RoutesTo(box.Nodes...), stranger)...)
	meet(t, box, box.Nodes...)

	for range 2 { // again is a no-op
		if _, err := box.RunController("cleanup"); err != nil {
			t.Fatal(err)
		}
		await(t, box, stranger)
	}
	meet(t, box)
}

// R093: a list that cannot be read is not an empty cluster.
func TestUnreadableNodesFileDeletesNothing(t *testing.T) {
	t.Parallel()
	box := raise(t, netns.Config{}, 1)
	p := control(t, box)
	whole, err := os.ReadFile(box.NodesFile())
	if err != nil {
		t.Fatal(err)
	}
	// Cut short like this it is still YAML, of three Nodes of which the last has
	// half a name and no podCIDR.
	half := whole[:bytes.LastIndex(whole, []byte("node-3"))+len("node-")]
	for _, c := range []struct {
		situation string
		write     func() error
	}{
		{"empty", func() error { return os.WriteFile(box.NodesFile(), nil, 0o644) }},
		{"half-written", func() error { return os.WriteFile(box.NodesFile(), half, 0o644) }},
		{"not a list", func() error { return os.WriteFile(box.NodesFile(), []byte("nodes\n"), 0o644) }},
		{"of no nodes", func() error { return box.WriteNodes() }},
		{"gone", func() error { return os.Remove(box.NodesFile()) }},
	} {
		says := newsOf(t, p)
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string { return says("last good list", "nodes file "+c.situation) })
		await(t, box, netns.RoutesTo(box.Nodes...)...)

		// The same trouble twice in a row is told once.
		says = newsOf(t, p)
		tell(t, box, box.Objects()...)
		eventually(t, func() string { return says("nodes file read", "nodes file whole again") })
	}
	meet(t, box, box.Nodes...)

	// It is still at work: the next good list is followed.
	tell(t, box, box.Nodes[0].Object(), box.Nodes[1].Object())
	await(t, box, netns.RoutesTo(box.Nodes[:2]...)...)
}

// newsOf returns a function that complains unless the controller has said a text
// since now.
func newsOf(t *testing.T, p *netns.Process) func(text, situation string) string {
	t.Helper()
	before, err := p.Log()
	if err != nil {
		t.Fatal(err)
	}
	return func(text, situation string) string {
		if after, err := p.Log(); err != nil || !strings.Contains(after[len(before):], text) {
			return fmt.Sprintf("%s: the controller does not say %q", situation, text)
		}
		return ""
	}
}
