package routes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// manyNodes makes n nodes with ranges /24 out of 10.0.0.0/8.
func manyNodes(n int) []Node {
	list := make([]Node, n)
	for i := range list {
		list[i] = Node{
			Node: vpc.Node{
				Name: fmt.Sprintf("n%d", i), UID: fmt.Sprintf("uid-%d", i),
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})},
			},
			PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff)},
		}
	}
	return list
}

var wideRange = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}

// R072: 2,000 nodes at once, at 10 calls a second and 5 s a call.
func TestManyNodesAtOnce(t *testing.T) {
	for _, c := range []struct {
		situation string
		n, perSec int
		hint      time.Duration
	}{
		{"the rate that is configured", 2000, 10, 0},
		{"half of it, without a hint", 700, 5, 0},
		{"half of it, with a hint", 700, 5, 2 * time.Second},
	} {
		t.Run(c.situation, func(t *testing.T) {
			n := c.n
			run(t, nil, func(r *rig) {
				r.cloud.perSec, r.cloud.hint, r.cloud.latency = c.perSec, c.hint, 5*time.Second
				r.config.Ranges = wideRange
				began := time.Now()
				r.start(manyNodes(n)...)
				for len(r.cloud.Routes()) < n && time.Since(began) < time.Hour {
					passes(5 * time.Second)
				}
				took := time.Since(began)
				least := time.Duration(n/c.perSec)*time.Second + r.cloud.latency
				if took > least*13/10 {
					t.Errorf("took %v, want at most 1.3 times %v", took, least)
				}
				if creates := len(r.cloud.did("create")) - r.cloud.rejected(); creates != n {
					t.Errorf("%d creates for %d routes", creates, n)
				}
				if rejected := r.cloud.rejected(); rejected*50 >= n {
					t.Errorf("%d calls rejected, want less than 2 %%", rejected)
				}
				t.Logf("%v, %.2f of the least; %d rejected", took, took.Seconds()/least.Seconds(), r.cloud.rejected())
			})
		})
	}
}

// A table that takes many changes in a call gets them so.
func TestManyNodesInBatches(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.cloud.perSec, r.cloud.latency, r.cloud.batch = 10, 5*time.Second, 50
		r.config.Ranges = wideRange
		r.start(manyNodes(2000)...)
		passes(20 * time.Second)
		if n := len(r.cloud.Routes()); n != 2000 {
			t.Errorf("%d routes, want 2000", n)
		}
	})
}

// R073: an idle cluster costs next to nothing, and a new node does not wait.
func TestIdleCluster(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.config.Ranges = wideRange
		list := manyNodes(500)
		r.start(list...)
		passes(5 * time.Minute)
		lists, writes, hops := len(r.cloud.did("List")), len(r.cloud.wrote()), len(r.cloud.did("NextHop"))
		for range 360 {
			passes(10 * time.Second)
			for _, n := range list {
				r.engine.SetNode(n) // heartbeats
			}
		}
		if n := len(r.cloud.did("List")) - lists; n > 12 {
			t.Errorf("%d lists in an idle hour, want at most 12", n)
		}
		if n := len(r.cloud.wrote()) - writes; n > 0 {
			t.Errorf("%d writes in an idle hour", n)
		}
		if n := len(r.cloud.did("NextHop")) - hops; n > 12*len(list) {
			t.Errorf("%d next hops asked for: heartbeats cost calls", n)
		}

		late := node(1).with(func(n *Node) { n.Name, n.PodCIDRs = "late", []string{"10.200.0.0/24"} })
		asked := time.Now()
		r.engine.SetNode(late)
		passes(time.Second)
		last := r.cloud.did("create")
		if at := last[len(last)-1]; at.c.Route.Node != "late" || at.at.Sub(asked) > time.Second {
			t.Errorf("the first call for a new node is %v, %v after it was known", at.c.Route.Node, at.at.Sub(asked))
		}
	})
}

// R073: the first call comes within a second of podCIDR and address being known.
func TestFirstCallComesAtOnce(t *testing.T) {
	whole := node(2)
	for name, lacking := range map[string]Node{
		"podCIDR comes late": whole.with(func(n *Node) { n.PodCIDRs = nil }),
		"address comes late": whole.with(func(n *Node) { n.Addresses = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(r *rig) {
				r.start(node(1), lacking)
				passes(7 * time.Minute)
				r.holds(serves(1, 1)...)
				r.engine.SetNode(whole)
				passes(time.Second)
				r.holds(serves(1, 2)...)
			})
		})
	}
}

// R070: a full table. Nobody floods it, everybody is told, and room is used.
func TestTableIsFull(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("limit told: %v", told), func(t *testing.T) {
			run(t, func(c *vpc.FakeConfig) { c.Max = 50 }, func(r *rig) {
				r.cloud.hideMax = !told
				r.config.Parallel = 5
				r.start(nodes(1, 60)...)
				passes(time.Hour)
				if n := len(r.cloud.Routes()); n != 50 {
					t.Errorf("%d routes, want 50", n)
				}
				full := 0
				for i := 1; i <= 60; i++ {
					if s := r.notes.node(fmt.Sprintf("n%d", i)); s.Reason == TableFull && s.Verdict == Unavailable {
						full++
					}
				}
				if full != 10 {
					t.Errorf("%d nodes without a route for the quota, want 10", full)
				}
				if told && r.notes.count(TableFilling) != 1 {
					t.Errorf("the filling table was told %d times, want once", r.notes.count(TableFilling))
				}
				if n := len(r.cloud.did("create")) - 50; n > 60+5 {
					t.Errorf("%d creates in vain in an hour, want one a minute", n)
				}

				// A node that goes makes room for one that waits.
				held := strings.TrimPrefix(string(r.cloud.Routes()[0].NextHop), "172.31.0.")
				r.engine.DropNode("n" + held)
				passes(time.Minute)
				if n := len(r.cloud.Routes()); n != 50 {
					t.Errorf("%d routes after a node went, want 50", n)
				}
			})
		})
	}
}

// Each class of errors has its one consequence.
func TestErrorsOfEveryClass(t *testing.T) {
	for _, c := range []struct {
		class   vpc.Class
		state   State
		reason  Reason
		atMost  int // tries of the failing node in ten minutes
		slowsUp bool
	}{
		{vpc.Transient, Pending, CloudFailing, 20, false},
		{vpc.InProgress, Pending, CloudFailing, 20, false},
		{vpc.Exists, Pending, CloudFailing, 20, false},
		{vpc.NotFound, Pending, CloudFailing, 20, false},
		{vpc.Invalid, Invalid, RequestRefused, 1, false},
		{vpc.Quota, QuotaExceeded, TableFull, 11, true},
		{vpc.Denied, Denied, AccessDenied, 11, true},
		{vpc.Throttled, Pending, CreatingRoute, 25, true},
	} {
		t.Run(c.class.String(), func(t *testing.T) {
			run(t, nil, func(r *rig) {
				r.start(nodes(1, 2)...)
				passes(time.Minute)
				failing := node(3)
				r.cloud.set(func() {
					r.cloud.fault = func(change vpc.Change) (bool, error) {
						if change.Route.Node == failing.Name {
							return false, vpc.Errorf(c.class, "planted")
						}
						return false, nil
					}
				})
				lists := len(r.cloud.did("List"))
				r.engine.SetNode(failing)
				passes(5 * time.Minute)
				if !c.slowsUp {
					// One bad route never stops the others.
					r.engine.SetNode(node(4))
					passes(time.Second)
					if !slices.Contains(r.cloud.text(), "10.244.4.0/24 172.31.0.4") {
						t.Errorf("another node has to wait: %q", r.cloud.text())
					}
				}
				passes(5 * time.Minute)
				r.wantRoute("n3", "10.244.3.0/24", c.state, c.reason)
				tries := slices.DeleteFunc(r.cloud.did("create"), func(call cloudCall) bool { return call.c.Route.Node != failing.Name })
				if n := len(tries); n > c.atMost || n < 1 {
					t.Errorf("%d tries in ten minutes, want 1 to %d", n, c.atMost)
				}
				if n := len(r.cloud.did("List")) - lists; n > c.atMost+3 {
					t.Errorf("%d lists in ten minutes", n)
				}
				r.cloud.set(func() { r.cloud.fault = nil })
				wait := 3 * time.Minute
				if c.class == vpc.Invalid {
					// The request would be the same; a new address makes another.
					failing.Addresses = []netip.Addr{netip.MustParseAddr("172.31.0.33")}
					r.engine.SetNode(failing)
				}
				passes(wait)
				r.wantNode("n3", Available, RouteReady)
			})
		})
	}
}

// A write whose answer is lost is looked for before it is repeated.
func TestLostAnswers(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				lost := map[string]bool{}
				r.cloud.fault = func(change vpc.Change) (bool, error) {
					key := fmt.Sprint(change.Op, change.Route)
					if change.Op == "" || lost[key] {
						return false, nil
					}
					lost[key] = true
					return true, errors.New("connection reset")
				}
				r.start(nodes(1, 5)...)
				passes(3 * time.Minute)
				r.engine.SetNode(node(1).with(func(n *Node) { n.Addresses[0] = netip.MustParseAddr("172.31.0.77") }))
				r.engine.DropNode("n2")
				passes(5 * time.Minute)
				text := r.cloud.text()
				for _, want := range append(serves(3, 5), "10.244.1.0/24 172.31.0.77") {
					if !slices.Contains(text, want) {
						t.Errorf("%q is missing", want)
					}
				}
				if n := len(text); n != 4 && name != "has two tables" {
					t.Errorf("the table holds %q", text)
				}
				if n := r.shelf.len(); n != len(text) {
					t.Errorf("%d ledger entries for %d routes", n, len(text))
				}
			})
		})
	}
}

// A tenth of all calls failing delays little and duplicates nothing.
func TestTenthOfCallsFails(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.cloud.latency, r.cloud.perSec = time.Second, 12
		r.config.Ranges = wideRange
		random := rand.New(rand.NewPCG(1, 2))
		r.cloud.fault = func(vpc.Change) (bool, error) {
			if random.IntN(10) == 0 {
				return random.IntN(2) == 0, vpc.Errorf(vpc.Transient, "planted")
			}
			return false, nil
		}
		r.start(manyNodes(500)...)
		began := time.Now()
		for len(r.cloud.Routes()) < 500 && time.Since(began) < time.Hour {
			passes(time.Second)
		}
		if took := time.Since(began); took > 100*time.Second {
			t.Errorf("took %v, want at most twice the least of 50 s", took)
		}
		passes(10 * time.Minute)
		if n := len(r.cloud.Routes()); n != 500 {
			t.Errorf("%d routes, want 500", n)
		}
	})
}

// R092: a cloud that is dead for a while is asked patiently, nothing is deleted,
// and all goes on afterwards.
func TestCloudIsDead(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.start(nodes(1, 5)...)
		passes(time.Minute)
		r.cloud.set(func() {
			r.cloud.fault = func(vpc.Change) (bool, error) { return false, errors.New("no route to host") }
		})
		lists := len(r.cloud.did("List"))
		r.engine.SetNode(node(6))
		passes(10 * time.Minute)
		r.engine.DropNode("n1")
		passes(50 * time.Minute)
		r.holds(serves(1, 5)...)
		if age := time.Since(r.engine.Stats().Compared); age < 50*time.Minute {
			t.Errorf("the last good comparison is %v old, want about an hour", age)
		}
		if n := len(r.cloud.did("List")) - lists; n > 70 {
			t.Errorf("%d lists in an hour", n)
		}
		if n := r.notes.count(ListFailed); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
		r.cloud.set(func() { r.cloud.fault = nil })
		passes(5 * time.Minute)
		r.holds(serves(2, 6)...)
		if n := r.notes.count(ListWorks); n != 1 {
			t.Errorf("told %d times that it works again, want once", n)
		}
	})
}

// Denied stops everything but one try a minute, for the whole table.
func TestEverythingIsDenied(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.cloud.fault = func(c vpc.Change) (bool, error) {
			if c.Op == "" {
				return false, nil
			}
			return false, vpc.Errorf(vpc.Denied, "no permission")
		}
		r.config.Parallel = 1
		r.start(nodes(1, 50)...)
		passes(30 * time.Minute)
		if n := len(r.cloud.wrote()); n > 32 || n < 25 {
			t.Errorf("%d tries in half an hour, want one a minute", n)
		}
		r.wantNode("n50", Unavailable, AccessDenied)
		r.cloud.set(func() { r.cloud.fault = nil })
		passes(2 * time.Minute)
		r.holds(serves(1, 50)...)
	})
}

// The cloud's answer about machines concerns one node, or everybody.
func TestNextHopsFail(t *testing.T) {
	for _, c := range []struct {
		class  vpc.Class
		state  State
		reason Reason
		atMost int // questions in ten minutes
	}{
		{vpc.NotFound, Unresolved, MachineUnknown, 4},
		{vpc.Invalid, Invalid, NodeUnfit, 4}, // R068, R083
		{vpc.Transient, Pending, ResolvingNextHop, 20},
		{vpc.Denied, Denied, AccessDenied, 14},
	} {
		t.Run(c.class.String(), func(t *testing.T) {
			run(t, nil, func(r *rig) {
				r.start(nodes(1, 2)...)
				passes(time.Minute)
				failing := true
				r.cloud.set(func() {
					r.cloud.machine = func(n vpc.Node, f vpc.Family) (vpc.NextHop, error) {
						if n.Name == "n3" && failing {
							return "", vpc.Errorf(c.class, "subnet-7 is attached to table rtb-9")
						}
						return vpc.NextHop(n.Address(f).String()), nil
					}
				})
				before := len(r.cloud.did("NextHop"))
				r.engine.SetNode(node(3))
				passes(10 * time.Minute)
				r.wantRoute("n3", "10.244.3.0/24", c.state, c.reason, "subnet-7", "rtb-9")
				r.wantNode("n1", Available, RouteReady)
				r.holds(serves(1, 2)...)
				if n := len(r.cloud.did("NextHop")) - before - 2*2; n > c.atMost {
					t.Errorf("%d questions in ten minutes, want at most %d", n, c.atMost)
				}
				r.cloud.set(func() { failing = false })
				passes(6 * time.Minute)
				r.holds(serves(1, 3)...)
			})
		})
	}
}

// A machine that cannot be found any more keeps its route while its Node is
// there.
func TestMachineVanishes(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.start(nodes(1, 2)...)
		passes(time.Minute)
		r.cloud.set(func() {
			r.cloud.machine = func(n vpc.Node, f vpc.Family) (vpc.NextHop, error) {
				return "", vpc.Errorf(vpc.NotFound, "no machine for %s", n.Name)
			}
		})
		passes(time.Hour)
		r.holds(serves(1, 2)...)
		r.wantNode("n1", Unavailable, MachineUnknown)
		r.engine.DropNode("n1")
		passes(time.Minute)
		r.holds(serves(2, 2)...)
	})
}

// What the process asked for when it was killed is found by its successor.
func TestCrashWhileWriting(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				r.cloud.latency = 10 * time.Second
				r.config.Grace = time.Nanosecond
				r.start(nodes(1, 5)...)
				passes(12 * time.Second) // the creates are under way
				r.stop()
				r.start(nodes(3, 5)...)
				passes(10 * time.Minute)
				text := r.cloud.text()
				for _, want := range serves(3, 5) {
					if !slices.Contains(text, want) {
						t.Errorf("%q is missing", want)
					}
				}
				if n := len(text); n != r.shelf.len() || n != 3 && name != "has two tables" {
					t.Errorf("%d ledger entries, and the table holds %q", r.shelf.len(), text)
				}
			})
		})
	}
}
