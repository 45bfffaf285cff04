package routes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// chaos is a model of what may happen to a cluster and its cloud, and of what
// must never happen whatever it is.
type chaos struct {
	*rig
	random *rand.Rand
	serial int
	// luck decides about faults; only the cloud uses it, under its own lock.
	luck   *rand.Rand
	faulty bool

	// mu guards what the cloud's calls look at while the test goes on. The test
	// itself, which alone changes nodes and strangers, reads those without it.
	mu    sync.Mutex
	nodes map[string]Node
	// made are the next hops that we asked for, by place; strangers are the
	// routes that others put there.
	made      map[Place]map[vpc.NextHop]bool
	strangers map[netip.Prefix]vpc.Route
	deletions []time.Time
	ours      int // the most of our routes since the last deletion window began
}

const chaosRanges = 24

// write checks a change that is about to be made.
func (c *chaos) write(change vpc.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := placeOf(change.Route)
	if c.made[place] == nil {
		c.made[place] = map[vpc.NextHop]bool{}
	}
	touched := change.Route.NextHop
	if change.Op == vpc.Replace {
		touched = change.Old.NextHop
	}
	if s, found := c.strangers[place.Destination]; found && change.Op != vpc.Create && s.NextHop == touched {
		c.t.Errorf("%s of a stranger's %s to %s", change.Op, place.Destination, touched)
	}
	switch change.Op {
	case vpc.Create, vpc.Replace:
		if !c.shelf.proves(change.Route) {
			c.t.Errorf("%s of %s to %s is not in the ledger", change.Op, place.Destination, change.Route.NextHop)
		}
		c.made[place][change.Route.NextHop] = true
	case vpc.Delete:
		if !c.made[place][touched] {
			c.t.Errorf("deletion of %s to %s, which we never made", place.Destination, touched)
		}
		if len(c.nodes) == 0 {
			c.t.Errorf("deletion of %s while there is no Node", place.Destination)
		}
		if !change.Route.Blackhole {
			c.deletions = append(c.deletions, time.Now())
		}
	}
}

// check looks for what must never be.
func (c *chaos) check() {
	count := map[Place]int{}
	ours := 0
	for _, r := range c.cloud.Routes() {
		if s, found := c.strangers[r.Destination]; found && s.NextHop == r.NextHop {
			continue
		}
		ours++
		if count[placeOf(r)]++; count[placeOf(r)] > 1 {
			c.t.Errorf("two routes of ours for %s: %q", r.Destination, c.cloud.text())
		}
	}
	for d, s := range c.strangers {
		if !slices.ContainsFunc(c.cloud.Routes(), func(r vpc.Route) bool { return r.Destination == d && r.NextHop == s.NextHop }) {
			c.t.Errorf("the stranger's %s is gone", d)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.deletions = slices.DeleteFunc(c.deletions, func(t time.Time) bool { return now.Sub(t) >= 5*time.Minute })
	if c.ours = max(c.ours, ours); len(c.deletions) > max(3, c.ours*20/100+1) {
		c.t.Errorf("%d deletions within a resync with %d routes", len(c.deletions), c.ours)
	}
}

// step lets one thing happen.
func (c *chaos) step() {
	i := c.random.IntN(chaosRanges)
	name := fmt.Sprintf("n%d", i)
	n, known := c.nodes[name]
	switch c.random.IntN(14) {
	case 0, 1, 2:
		if !known {
			c.serial++
			n = node(i).with(func(n *Node) {
				n.UID = fmt.Sprint(c.serial)
				n.Addresses[0] = netip.AddrFrom4([4]byte{172, 30, byte(c.serial >> 8), byte(c.serial)})
			})
		}
		c.set(n)
	case 3:
		if known {
			c.change(func() { delete(c.nodes, name) })
			c.engine.DropNode(name)
		}
	case 4:
		if known {
			c.serial++
			c.set(n.with(func(n *Node) { n.Addresses[0] = netip.AddrFrom4([4]byte{172, 30, byte(c.serial >> 8), byte(c.serial)}) }))
		}
	case 5: // another's range, none, or nonsense
		if known {
			other := [][]string{{fmt.Sprintf("10.244.%d.0/24", c.random.IntN(chaosRanges))}, nil, {"10.244.0.0/33"}, {"10.244.0.0/21"}, {"192.0.2.0/24"}}
			c.set(n.with(func(n *Node) { n.PodCIDRs = other[c.random.IntN(len(other))] }))
		}
	case 6:
		if known {
			c.set(n.with(func(n *Node) { n.Exclusion = Exclusion(c.random.IntN(3)) }))
		}
	case 7:
		if known {
			c.cloud.Terminate(vpc.NextHop(n.Addresses[0].String()))
		}
	case 8: // a stranger takes a free range, or leaves
		d := netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))
		if s, found := c.strangers[d]; found {
			c.change(func() { delete(c.strangers, d) })
			c.cloud.Drop(func(r vpc.Route) bool { return r.Destination == d && r.NextHop == s.NextHop })
		} else if !slices.ContainsFunc(c.cloud.Routes(), func(r vpc.Route) bool { return r.Destination == d }) {
			s := vpc.Route{Destination: d, NextHop: "stranger", Owner: "somebody"}
			c.change(func() { c.strangers[d] = s })
			c.cloud.Put(s)
		}
	case 9: // somebody deletes a route of ours
		d := netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))
		if _, found := c.strangers[d]; !found {
			c.cloud.remove(d.String())
		}
	case 10:
		c.cloud.set(func() { c.faulty = !c.faulty })
	case 11: // a crash, or another leader
		if c.random.IntN(4) == 0 {
			c.restart()
		}
	case 12: // the watch had a gap: the list comes anew
		c.engine.SetNodes(c.list())
	case 13:
		if c.random.IntN(20) == 0 {
			c.engine.SetNodes(nil)
			passes(time.Duration(c.random.IntN(300)) * time.Second)
			c.engine.SetNodes(c.list())
		}
	}
}

func (c *chaos) set(n Node) {
	c.change(func() { c.nodes[n.Name] = n })
	c.engine.SetNode(n)
}

// change changes what the cloud's calls look at.
func (c *chaos) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *chaos) list() []Node {
	list := []Node{}
	for _, n := range c.nodes {
		list = append(list, n)
	}
	return list
}

func (c *chaos) restart() {
	c.stop()
	c.notes = newNotebook()
	c.change(func() { c.deletions, c.ours = nil, 0 }) // the brake counts for one process
	c.start(c.list()...)
}

// fault fails a call in one of all the ways there are.
func (c *chaos) fault(vpc.Change) (lost bool, err error) {
	if !c.faulty || c.luck.IntN(3) > 0 {
		return false, nil
	}
	if c.luck.IntN(3) == 0 {
		return c.luck.IntN(2) == 0, errors.New("connection reset")
	}
	class := vpc.Class(c.luck.IntN(int(vpc.Invalid)))
	return false, &vpc.Error{Class: class, RetryAfter: time.Duration(c.luck.IntN(3)) * time.Second, Err: errors.New("planted")}
}

// Whatever happens, a stranger's route is never written, no range gets two
// routes of ours, the brake holds, and once it is quiet the table converges.
func TestChaos(t *testing.T) {
	for name, kind := range map[string]func(*vpc.FakeConfig){
		"marks routes":       nil,
		"marks nothing":      func(c *vpc.FakeConfig) { c.Owner = "" },
		"shows writes late":  func(c *vpc.FakeConfig) { c.Delay = 15 * time.Second },
		"has room for fewer": func(c *vpc.FakeConfig) { c.Max = 15 },
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				run(t, kind, func(r *rig) {
					c := &chaos{
						rig: r, random: rand.New(rand.NewPCG(seed, 7)), luck: rand.New(rand.NewPCG(seed, 8)), nodes: map[string]Node{},
						made: map[Place]map[vpc.NextHop]bool{}, strangers: map[netip.Prefix]vpc.Route{},
					}
					c.cloud.onWrite, c.cloud.fault, c.cloud.latency = c.write, c.fault, 300*time.Millisecond
					c.config.Grace = time.Nanosecond
					c.start(nodes(1, 6)...)
					for _, n := range nodes(1, 6) {
						c.change(func() { c.nodes[n.Name] = n })
					}
					for range 1500 {
						c.step()
						passes(time.Duration(c.random.IntN(20000)) * time.Millisecond)
						if c.check(); c.t.Failed() {
							c.t.FailNow()
						}
					}
					c.quiet()
				})
			})
		}
	}
}

// quiet ends all trouble and checks that the table becomes as it should be.
func (c *chaos) quiet() {
	c.cloud.set(func() { c.faulty = false })
	for d, s := range c.strangers {
		c.cloud.Drop(func(r vpc.Route) bool { return r.Destination == d && r.NextHop == s.NextHop })
	}
	c.change(func() { c.strangers, c.nodes = map[netip.Prefix]vpc.Route{}, map[string]Node{} })
	var want []string
	for i := 30; i < 42; i++ {
		c.change(func() { c.nodes[fmt.Sprintf("n%d", i)] = node(i) })
		want = append(want, serves(i, i)...)
	}
	c.engine.SetNodes(c.list())
	passes(3 * time.Hour)
	if got := c.cloud.text(); !cmp.Equal(want, got) {
		c.t.Errorf("when it is quiet the table is (-want +got)\n%s", cmp.Diff(want, got))
	}
	if n := c.shelf.len(); n != len(want) {
		c.t.Errorf("%d ledger entries for %d routes", n, len(want))
	}
	for name := range c.nodes {
		c.wantNode(name, Available, RouteReady)
	}
}
