package routes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// passes lets the clock run and everything that is then due come to rest.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// holds checks what the tables really hold.
func (r *rig) holds(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{}, want...), r.cloud.text()); diff != "" {
		r.t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// serves is what the table holds for nodes as they are made by node.
func serves(from, to int) []string {
	var lines []string
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprintf("10.244.%d.0/24 172.31.0.%d", i, i))
	}
	return lines
}

func (r *rig) wantNode(name string, verdict Verdict, reason Reason, words ...string) {
	r.t.Helper()
	s := r.notes.node(name)
	if s.Verdict != verdict || s.Reason != reason {
		r.t.Errorf("node %s is %v for %s, want %v for %s (%s)", name, s.Verdict, s.Reason, verdict, reason, s.Message)
	}
	for _, word := range words {
		if !strings.Contains(s.Message, word) {
			r.t.Errorf("node %s: message %q does not name %q", name, s.Message, word)
		}
	}
}

func (r *rig) wantRoute(name, dest string, state State, reason Reason, words ...string) {
	r.t.Helper()
	s := r.notes.route(name, dest)
	if s.State != state || s.Reason != reason {
		r.t.Errorf("route %s of %s is %s for %s, want %s for %s (%s)", dest, name, s.State, s.Reason, state, reason, s.Message)
	}
	for _, word := range words {
		if !strings.Contains(s.Message, word) {
			r.t.Errorf("route %s of %s: message %q does not name %q", dest, name, s.Message, word)
		}
	}
}

// run is a test in virtual time around a rig.
func run(t *testing.T, change func(*vpc.FakeConfig), f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		f(r)
		if r.stop != nil {
			r.stop()
		}
		if len(r.cloud.overlaps) > 0 {
			t.Errorf("writes began while others of their place were under way: %v", r.cloud.overlaps)
		}
	})
}

// kinds are the kinds of clouds that matter for who owns a route.
var kinds = map[string]func(*vpc.FakeConfig){
	"marks routes":         nil,
	"marks nothing":        func(c *vpc.FakeConfig) { c.Owner = "" },
	"has handles":          func(c *vpc.FakeConfig) { c.IDs = true },
	"one range a next hop": func(c *vpc.FakeConfig) { c.OnePerNextHop = true },
	"has two tables":       func(c *vpc.FakeConfig) { c.Tables = []string{"rtb-1", "rtb-2"} },
	"shows writes late":    func(c *vpc.FakeConfig) { c.Delay = 20 * time.Second },
}

func TestTableFollowsNodes(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				everywhere := func(lines []string) []string {
					if name == "has two tables" {
						for _, l := range slices.Clone(lines) {
							lines = append(lines, "rtb-2 "+l)
						}
					}
					return lines
				}
				r.start(nodes(1, 3)...)
				passes(time.Minute)
				r.holds(everywhere(serves(1, 3))...)
				for i := 1; i <= 3; i++ {
					r.wantNode(fmt.Sprintf("n%d", i), Available, RouteReady)
				}

				r.engine.SetNode(node(4))
				passes(time.Minute)
				r.holds(everywhere(serves(1, 4))...)

				r.engine.DropNode("n2")
				passes(time.Minute)
				r.holds(everywhere(append(serves(1, 1), serves(3, 4)...))...)

				moved := node(1).with(func(n *Node) { n.Addresses[0] = netip.MustParseAddr("172.31.0.77") })
				r.engine.SetNode(moved)
				passes(time.Minute)
				r.holds(everywhere(append(serves(3, 4), "10.244.1.0/24 172.31.0.77"))...)

				ranged := node(3).with(func(n *Node) { n.PodCIDRs[0] = "10.244.33.0/24" })
				r.engine.SetNode(ranged)
				passes(2 * time.Minute)
				r.holds(everywhere(append(serves(4, 4), "10.244.1.0/24 172.31.0.77", "10.244.33.0/24 172.31.0.3"))...)
				if n := r.shelf.len(); n != len(r.cloud.Routes()) {
					t.Errorf("the ledger has %d entries for %d routes", n, len(r.cloud.Routes()))
				}
			})
		})
	}
}

func TestTwoNodesSwapRanges(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				if r.cloud.batch = 1; name == "one range a next hop" {
					r.cloud.batch = 2 // replaces in a ring are for such a table to see together
				}
				r.start(nodes(1, 2)...)
				passes(time.Minute)
				swap := func(n *Node, other int) { n.Addresses = node(other).Addresses }
				r.engine.SetNodes([]Node{
					node(1).with(func(n *Node) { swap(n, 2) }),
					node(2).with(func(n *Node) { swap(n, 1) }),
				})
				passes(10 * time.Minute)
				for _, l := range []string{"10.244.1.0/24 172.31.0.2", "10.244.2.0/24 172.31.0.1"} {
					if !slices.Contains(r.cloud.text(), l) {
						t.Errorf("%q is missing: %q", l, r.cloud.text())
					}
				}
			})
		})
	}
}

func TestBothFamilies(t *testing.T) {
	run(t, nil, func(r *rig) {
		both := node(1).with(func(n *Node) {
			n.PodCIDRs = append(n.PodCIDRs, "fd00:10:244:1::/64")
			n.Addresses = append(n.Addresses, netip.MustParseAddr("fd00::1"))
		})
		r.start(both)
		passes(time.Minute)
		r.holds("10.244.1.0/24 172.31.0.1", "fd00:10:244:1::/64 fd00::1")
		r.wantNode("n1", Available, RouteReady)

		// The other family goes on when one has no address any more.
		r.engine.SetNode(both.with(func(n *Node) { n.Addresses = n.Addresses[:1] }))
		passes(time.Minute)
		r.holds("10.244.1.0/24 172.31.0.1", "fd00:10:244:1::/64 fd00::1")
		r.wantRoute("n1", "10.244.1.0/24", Verified, RouteReady)
		r.wantRoute("n1", "fd00:10:244:1::/64", Invalid, NodeUnfit, "IPv6")
		r.wantNode("n1", Unavailable, NodeUnfit, "IPv6 address")
	})
}

// A bad Node is one state on that Node; everybody else is unaffected. R083.
func TestBadNodesAreIsolated(t *testing.T) {
	for _, c := range []struct {
		situation string
		podCIDRs  []string
		reason    Reason
		words     []string
	}{
		{"no podCIDR", nil, NoPodCIDR, []string{"spec.podCIDRs", "10.244."}},
		{"not a range", []string{"10.244.9.0"}, InvalidPodCIDR, []string{"spec.podCIDRs[0]", `"10.244.9.0"`, "/24"}},
		{"host bits", []string{"10.244.9.7/24"}, InvalidPodCIDR, []string{"10.244.9.0/24"}},
		{"outside (R058)", []string{"10.99.9.0/24"}, PodCIDROutOfRange, []string{"10.99.9.0/24", "10.244.0.0/16"}},
		{"wider than the cluster's", []string{"10.0.0.0/8"}, PodCIDROutOfRange, []string{"10.0.0.0/8"}},
		{"IPv4 as IPv6", []string{"::ffff:10.244.9.0/120"}, InvalidPodCIDR, []string{"IPv4"}},
		{"two of one family", []string{"10.244.9.0/24", "10.244.10.0/24"}, InvalidPodCIDR, []string{"10.244.10.0/24", "second"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			run(t, nil, func(r *rig) {
				bad := node(9).with(func(n *Node) { n.PodCIDRs = c.podCIDRs })
				r.start(append(nodes(1, 2), bad)...)
				passes(time.Hour)
				want := serves(1, 2)
				if len(c.podCIDRs) == 2 {
					want = append(want, serves(9, 9)...)
				}
				r.holds(want...)
				r.wantNode("n9", Unavailable, c.reason, c.words...)
				r.wantNode("n1", Available, RouteReady)
				if told := r.notes.told; told > 30 {
					t.Errorf("%d reports in an hour", told)
				}

				r.engine.SetNode(node(9))
				passes(time.Minute)
				r.holds(append(serves(1, 2), serves(9, 9)...)...)
				r.wantNode("n9", Available, RouteReady)
			})
		})
	}
}

// A Node whose podCIDR becomes unreadable keeps its route; one that is created
// again under its name does not.
func TestBrokenInputCostsNoRoute(t *testing.T) {
	for name, podCIDRs := range map[string][]string{"unreadable": {"10.244.1.0/240"}, "gone": nil} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(r *rig) {
				r.start(nodes(1, 2)...)
				passes(time.Minute)
				r.engine.SetNode(node(1).with(func(n *Node) { n.PodCIDRs = podCIDRs }))
				passes(time.Hour)
				r.holds(serves(1, 2)...)
				r.engine.SetNode(node(1).with(func(n *Node) { n.PodCIDRs, n.UID = podCIDRs, "new" }))
				passes(time.Minute)
				r.holds(serves(2, 2)...)
			})
		})
	}
}

// R057: machines that die before their Nodes leave blackholes, and the next node
// gets the range.
func TestTerminatedMachinesLeaveNothing(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.start(nodes(1, 3)...)
		passes(time.Minute)
		for cycle := range 100 {
			n := node(9).with(func(n *Node) {
				n.Name, n.UID = fmt.Sprintf("w%d", cycle), fmt.Sprintf("w%d", cycle)
				n.Addresses[0] = netip.AddrFrom4([4]byte{172, 31, 1, byte(cycle)})
			})
			r.engine.SetNode(n)
			passes(20 * time.Second)
			hop := vpc.NextHop(n.Addresses[0].String())
			if want := append(serves(1, 3), fmt.Sprintf("10.244.9.0/24 %s", hop)); !cmp.Equal(want, r.cloud.text()) {
				t.Fatalf("cycle %d: %q", cycle, r.cloud.text())
			}
			r.cloud.Terminate(hop)
			r.engine.Relist()
			passes(20 * time.Second)
			if cycle%2 == 0 {
				r.engine.DropNode(n.Name) // else its successor comes first
				passes(20 * time.Second)
				r.holds(serves(1, 3)...)
				continue
			}
			defer r.engine.DropNode(n.Name)
			r.engine.SetNode(n.with(func(n *Node) { n.PodCIDRs = nil; n.UID += "again" }))
		}
	})
}

// R058, R081: routes with another mark, or none, are nobody's business but their
// own; that they lie in our range is told once.
func TestForeignRoutesAreReportedOnce(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.cloud.Put(routeTo("", "0.0.0.0/0", "igw", ""))
		r.cloud.Put(routeTo("", "10.0.0.0/8", "peer", ""))
		r.cloud.Put(routeTo("", "10.244.200.0/24", "stranger", "other-cluster"))
		r.cloud.Put(routeTo("", "10.244.2.0/24", "stranger", ""))
		r.cloud.Put(vpc.Route{Text: "pl-1234", NextHop: "endpoint"})
		r.start(nodes(1, 2)...)
		passes(time.Hour)
		r.holds("0.0.0.0/0 igw", "10.0.0.0/8 peer", "10.244.1.0/24 172.31.0.1", "10.244.2.0/24 stranger",
			"10.244.200.0/24 stranger of other-cluster", "invalid Prefix endpoint")
		if n := r.notes.count(ConflictFound); n != 2 {
			t.Errorf("%d conflicts told, want 2: %v", n, r.notes.events)
		}
		r.wantRoute("n2", "10.244.2.0/24", Conflicting, ForeignRoute, "10.244.2.0/24", "stranger")
		r.wantNode("n2", Unavailable, ForeignRoute)

		// Out of the way, the node's route is made at the next comparison.
		r.cloud.remove("10.244.2.0/24")
		passes(6 * time.Minute)
		r.wantNode("n2", Available, RouteReady)
		if n := r.notes.count(ConflictSolved); n != 1 {
			t.Errorf("%d conflicts told as solved, want 1", n)
		}
	})
}

// R079: of two Nodes with one podCIDR the holder keeps it.
func TestTwoNodesOneRange(t *testing.T) {
	twin := node(5).with(func(n *Node) { n.PodCIDRs = node(1).PodCIDRs })
	for name, kind := range kinds {
		if name == "has two tables" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				r.start(node(1), twin)
				passes(time.Minute)
				r.holds("10.244.1.0/24 172.31.0.1")
				r.wantRoute("n5", "10.244.1.0/24", Duplicate, PodCIDRTaken, "n1", "n5", "10.244.1.0/24")
				r.wantNode("n5", Unavailable, PodCIDRTaken, "n1")
				r.wantNode("n1", Available, RouteReady)
				before := len(r.cloud.wrote())

				r.engine.DropNode("n5")
				passes(time.Minute)
				if n := len(r.cloud.wrote()); n != before {
					t.Errorf("the twin went, and the range was written %d times", n-before)
				}
				r.engine.SetNode(twin)
				passes(time.Minute)
				r.engine.DropNode("n1")
				passes(time.Minute)
				r.holds("10.244.1.0/24 172.31.0.5")
				r.wantNode("n5", Available, RouteReady)

				// The younger one holds it now, whoever comes.
				r.engine.SetNode(node(1))
				passes(time.Minute)
				r.holds("10.244.1.0/24 172.31.0.5")
				r.wantNode("n1", Unavailable, PodCIDRTaken, "n5")

				// So it is after a restart, by the ledger or by the table.
				for _, ledger := range []*shelf{r.shelf, newShelf()} {
					r.stop()
					r.config.Ledger = ledger
					r.notes = newNotebook()
					r.start(node(1), twin)
					passes(time.Minute)
					r.holds("10.244.1.0/24 172.31.0.5")
					r.wantNode("n1", Unavailable, PodCIDRTaken, "n5")
				}
			})
		})
	}
}

func TestOverlappingRanges(t *testing.T) {
	wide := node(8).with(func(n *Node) { n.PodCIDRs = []string{"10.244.0.0/22"} })
	run(t, nil, func(r *rig) {
		r.start(node(1), node(2))
		passes(time.Minute)
		r.engine.SetNode(wide)
		r.engine.SetNode(node(3).with(func(n *Node) { n.Created = wide.Created.Add(-time.Hour) }))
		passes(time.Minute)
		r.holds(serves(1, 3)...)
		r.wantNode("n8", Unavailable, PodCIDRTaken, "10.244.0.0/22")
		for i := 1; i <= 3; i++ {
			r.engine.DropNode(fmt.Sprintf("n%d", i))
		}
		r.engine.SetNode(node(7)) // the list is not empty
		passes(time.Minute)
		r.holds("10.244.0.0/22 172.31.0.8", "10.244.7.0/24 172.31.0.7")
	})
}

// R084: a Node with the exclusion label is left alone.
func TestExcludedNodes(t *testing.T) {
	label := func(e Exclusion) Node { return node(2).with(func(n *Node) { n.Exclusion = e }) }
	run(t, nil, func(r *rig) {
		r.start(node(1), label(ExcludedKeep))
		passes(time.Minute)
		r.holds(serves(1, 1)...)
		r.wantNode("n2", Untouched, NodeExcluded)

		// Without the label the route is made within 10 s.
		r.engine.SetNode(label(Included))
		passes(10 * time.Second)
		r.holds(serves(1, 2)...)

		r.engine.SetNode(label(ExcludedKeep))
		passes(time.Hour)
		r.holds(serves(1, 2)...)
		r.wantRoute("n2", "10.244.2.0/24", Excluded, NodeExcluded, "remove")

		r.engine.SetNode(label(ExcludedRemove))
		passes(time.Minute)
		r.holds(serves(1, 1)...)
		r.wantNode("n2", Untouched, NodeExcluded)
		if n := r.shelf.len(); n != 1 {
			t.Errorf("%d ledger entries, want 1", n)
		}
	})
}

func TestParseExclusion(t *testing.T) {
	for value, want := range map[string]Exclusion{"": ExcludedKeep, "true": ExcludedKeep, "keep": ExcludedKeep, "remove": ExcludedRemove, "false": Included} {
		if got := ParseExclusion(map[string]string{ExcludeLabel: value}); got != want {
			t.Errorf("label %q means %v, want %v", value, got, want)
		}
	}
	if got := ParseExclusion(map[string]string{"other": "x"}); got != Included {
		t.Errorf("no label means %v", got)
	}
}

// R093: neither an empty Node list nor one that never came is a reason to delete.
func TestAbsenceOfNodesDeletesNothing(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.start(nodes(1, 3)...)
		passes(time.Minute)
		r.engine.SetNodes(nil)
		passes(time.Hour)
		r.holds(serves(1, 3)...)
		if n := r.notes.count(DeletionsHeld); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
		r.stop()
		writes := len(r.cloud.wrote())
		r.start() // no list at all
		passes(time.Hour)
		if n := len(r.cloud.wrote()); n != writes {
			t.Errorf("%d writes without a Node list", n-writes)
		}
		r.engine.SetNodes(nodes(1, 2))
		passes(time.Minute)
		r.holds(serves(1, 2)...)
	})
}

// At most 20 % of our routes, and those of three nodes, go in one resync.
func TestBrakeOnDeletions(t *testing.T) {
	for _, c := range []struct {
		situation    string
		have, remain int
		override     int
		limit        int // deletions in any five minutes
	}{
		{"most nodes vanish", 40, 5, 0, 8},
		{"few nodes", 5, 1, 0, 3},
		{"limit by hand", 40, 5, 2, 2},
		{"no limit", 40, 5, -1, 35},
	} {
		t.Run(c.situation, func(t *testing.T) {
			run(t, nil, func(r *rig) {
				r.config.MaxDeletes = c.override
				r.start(nodes(1, c.have)...)
				passes(time.Minute)
				r.engine.SetNodes(nodes(1, c.remain))
				passes(time.Minute)
				if got := len(r.cloud.did("delete")); got != c.limit {
					t.Errorf("%d deletions at once, want %d", got, c.limit)
				}
				if want := c.have - c.remain - c.limit; r.engine.Stats().Held != want {
					t.Errorf("%d held, want %d", r.engine.Stats().Held, want)
				}
				passes(2 * time.Hour)
				r.holds(serves(1, c.remain)...)
				deletes := r.cloud.did("delete")
				for i, d := range deletes {
					n := 0
					for _, o := range deletes[i:] {
						if o.at.Sub(d.at) < 5*time.Minute {
							n++
						}
					}
					if n > c.limit {
						t.Fatalf("%d deletions in five minutes, want at most %d", n, c.limit)
					}
				}
				want := 1
				if c.override < 0 {
					want = 0
				}
				if n := r.notes.count(DeletionsHeld); n != want {
					t.Errorf("told %d times, want %d", n, want)
				}
			})
		})
	}
}

// A route is recorded before the cloud is asked, and forgotten after the cloud
// has forgotten it.
func TestLedgerIsWrittenAhead(t *testing.T) {
	run(t, func(c *vpc.FakeConfig) { c.Owner = "" }, func(r *rig) {
		r.cloud.onWrite = func(c vpc.Change) {
			switch c.Op {
			case vpc.Create, vpc.Replace:
				if !r.shelf.proves(c.Route) {
					t.Errorf("%s of %s to %s is not in the ledger", c.Op, c.Route.Destination, c.Route.NextHop)
				}
				if c.Op == vpc.Replace && !r.shelf.proves(c.Old) {
					t.Errorf("%s: the old next hop %s is not in the ledger any more", c.Route.Destination, c.Old.NextHop)
				}
			case vpc.Delete:
				if !r.shelf.proves(c.Route) {
					t.Errorf("%s is forgotten before it is deleted", c.Route.Destination)
				}
			}
		}
		r.start(nodes(1, 3)...)
		passes(time.Minute)
		r.engine.SetNode(node(1).with(func(n *Node) { n.Addresses[0] = netip.MustParseAddr("172.31.0.77") }))
		r.engine.DropNode("n2")
		passes(2 * time.Minute)
		r.holds("10.244.1.0/24 172.31.0.77", "10.244.3.0/24 172.31.0.3")
		if n := r.shelf.len(); n != 2 {
			t.Errorf("%d ledger entries, want 2", n)
		}
		for _, e := range r.shelf.entries {
			if len(e.Previous) > 0 {
				t.Errorf("entry of %s still names %v", e.Node, e.Previous)
			}
		}
	})
}

func TestLedgerFails(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.shelf.fail = func(_ bool, e Entry) error {
			if e.Node == "n1" {
				return fmt.Errorf("disk full")
			}
			return nil
		}
		r.start(nodes(1, 2)...)
		passes(time.Minute)
		r.holds(serves(2, 2)...)
		r.wantRoute("n1", "10.244.1.0/24", Pending, LedgerFailing, "disk full")
		r.shelf.mu.Lock()
		r.shelf.fail = nil
		r.shelf.mu.Unlock()
		passes(3 * time.Minute)
		r.holds(serves(1, 2)...)
	})
}

// Losing every record never makes us delete or fight a correct route.
func TestLostLedger(t *testing.T) {
	for name, kind := range kinds {
		if name == "has two tables" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				r.start(nodes(1, 3)...)
				passes(time.Minute)
				r.stop()
				before := len(r.cloud.wrote())
				r.shelf = newShelf()
				r.config.Ledger = r.shelf
				r.start(nodes(1, 3)...)
				passes(time.Hour)
				r.holds(serves(1, 3)...)
				if n := len(r.cloud.wrote()); n != before {
					t.Errorf("%d writes", n-before)
				}
				r.wantNode("n1", Available, RouteReady)
				wantEntries := 3
				if name == "marks nothing" {
					wantEntries = 0 // no proof, and nobody asked to adopt
				}
				if n := r.shelf.len(); n != wantEntries {
					t.Errorf("%d entries recorded, want %d", n, wantEntries)
				}
			})
		})
	}
}

func TestAdoptUnmarkedRoutes(t *testing.T) {
	run(t, func(c *vpc.FakeConfig) { c.Owner = "" }, func(r *rig) {
		r.cloud.Put(routeTo("", "10.244.1.0/24", "172.31.0.1", ""))
		r.cloud.Put(routeTo("", "10.244.2.0/24", "172.31.0.99", ""))
		r.config.Adopt = true
		r.start(nodes(1, 2)...)
		passes(time.Minute)
		r.wantNode("n1", Available, RouteReady)
		r.wantNode("n2", Unavailable, ForeignRoute)
		if n := r.notes.count(RouteAdopted); n != 1 {
			t.Errorf("%d routes adopted, want 1", n)
		}
		r.engine.DropNode("n1")
		passes(2 * time.Minute)
		r.holds("10.244.2.0/24 172.31.0.99")
	})
}

// Drift is repaired at the next full comparison and told once.
func TestDriftIsRepaired(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.start(nodes(1, 3)...)
		passes(time.Minute)
		r.cloud.remove("10.244.1.0/24")
		r.cloud.remove("10.244.2.0/24")
		r.cloud.Put(routeTo("", "10.244.2.0/24", "172.31.0.66", "prod"))
		passes(6 * time.Minute)
		r.holds(serves(1, 3)...)
		if n := r.notes.count(DriftRepaired); n != 2 {
			t.Errorf("drift told %d times, want 2: %v", n, r.notes.events)
		}
		if n := r.engine.Stats().Drift; n != 2 {
			t.Errorf("drift counted %d times, want 2", n)
		}
	})
}

// R078: a range that somebody changes back again and again is left after three
// writes in ten minutes.
func TestContendedRange(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.config.Resync = time.Minute
		r.start(nodes(1, 2)...)
		for range 120 {
			passes(30 * time.Second)
			r.cloud.remove("10.244.1.0/24")
		}
		creates := r.cloud.did("create")
		for i, c := range creates {
			n := 0
			for _, o := range creates[i:] {
				if o.c.Route.Destination == c.c.Route.Destination && o.at.Sub(c.at) < 10*time.Minute {
					n++
				}
			}
			if n > 3 {
				t.Fatalf("%s was written %d times in ten minutes", c.c.Route.Destination, n)
			}
		}
		if len(creates) < 10 {
			t.Errorf("%d creates in an hour: it gave up for good", len(creates))
		}
		if r.notes.count(RangeRewritten) == 0 {
			t.Error("nobody was told")
		}
		r.wantNode("n2", Available, RouteReady)
	})
}

// R078: whatever a node is called, its route is made once.
func TestNamesOfNodes(t *testing.T) {
	var list []Node
	for i, name := range []string{"short", "node.eu-west-1.compute.internal", "UPPER", "172.31.0.4"} {
		n := node(i + 1)
		n.Name = name
		if i%2 == 0 {
			n.ProviderID = "fake:///zone/" + name
		}
		list = append(list, n)
	}
	run(t, nil, func(r *rig) {
		r.start(list...)
		for range 100 {
			passes(r.config.withDefaults().Resync)
			r.engine.SetNodes(list)
		}
		if creates, others := len(r.cloud.did("create")), len(r.cloud.did("delete", "replace")); creates != len(list) || others != 0 {
			t.Errorf("%d creates and %d others, want %d and 0", creates, others, len(list))
		}
	})
}

// R080: two controllers at work on one table delete no correct route.
func TestTwoControllersAtOnce(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				r.start(nodes(1, 5)...)
				other := &rig{t: r.t, cloud: r.cloud, shelf: newShelf(), notes: newNotebook(), config: r.config}
				other.config.Ledger = other.shelf
				other.start(nodes(1, 5)...)
				passes(2 * time.Hour)
				other.stop()
				if n := len(r.cloud.did("delete", "replace")); n > 0 {
					t.Errorf("%d deletes and replaces of correct routes", n)
				}
				if n := len(r.cloud.Routes()); n < 5 {
					t.Errorf("%d routes, want at least 5", n)
				}
				// Each of them meets entries of the other's making and goes on.
				r.cloud.overlaps = nil
			})
		})
	}
}

// R081: cleanup takes ours away and nothing else; again it does nothing.
func TestCleanup(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			run(t, kind, func(r *rig) {
				r.start(nodes(1, 30)...)
				passes(time.Minute)
				r.stop()
				r.stop = nil
				r.cloud.Put(routeTo("", "10.244.200.0/24", "stranger", "other"))
				r.cloud.perSec, r.cloud.batch = 5, 3
				want := len(r.cloud.Routes()) - 1
				done, err := Cleanup(r.t.Context(), r.config)
				if err != nil {
					t.Fatal(err)
				}
				if done.Deleted != want || len(done.Left) != 0 || len(done.Foreign) != 1 {
					t.Errorf("%d deleted of %d, %d left, %d foreign", done.Deleted, want, len(done.Left), len(done.Foreign))
				}
				r.holds("10.244.200.0/24 stranger of other")
				if n := r.shelf.len(); n != 0 {
					t.Errorf("%d ledger entries are left", n)
				}
				before := len(r.cloud.wrote())
				r.cloud.Settle()
				again, err := Cleanup(r.t.Context(), r.config)
				if err != nil || again.Deleted != 0 || len(r.cloud.wrote()) != before {
					t.Errorf("again: %+v, %v, %d writes", again, err, len(r.cloud.wrote())-before)
				}
			})
		})
	}
}

func TestCleanupSaysWhatIsLeft(t *testing.T) {
	run(t, nil, func(r *rig) {
		r.start(nodes(1, 3)...)
		passes(time.Minute)
		r.stop()
		r.stop = nil
		r.cloud.fault = func(c vpc.Change) (bool, error) {
			if c.Op == vpc.Delete && c.Route.Destination.String() == "10.244.2.0/24" {
				return false, vpc.Errorf(vpc.Denied, "not allowed")
			}
			return false, nil
		}
		done, err := Cleanup(r.t.Context(), r.config)
		if err != nil || done.Deleted != 2 || len(done.Left) != 1 || !strings.Contains(done.Left[0].Err.Error(), "not allowed") {
			t.Errorf("%+v, %v", done, err)
		}
		r.holds(serves(2, 2)...)
		if n := r.shelf.len(); n != 3 {
			t.Errorf("%d ledger entries, want all 3 while a route is left", n)
		}
	})
}

// R093: a preview makes no write and gives a reason for every change.
func TestLook(t *testing.T) {
	run(t, nil, func(r *rig) {
		for _, route := range []vpc.Route{
			routeTo("", "10.244.6.0/24", "172.31.0.60", "prod"),
			routeTo("", "10.244.7.0/24", "172.31.0.70", "prod"),
			routeTo("", "10.244.50.0/24", "172.31.0.50", "prod"),
			routeTo("", "10.244.51.0/24", "172.31.0.51", "prod"),
			routeTo("", "10.244.52.0/24", "172.31.0.52", "prod"),
			routeTo("", "10.244.99.0/24", "172.31.0.99", "stranger"),
		} {
			r.cloud.Put(route)
		}
		bad := node(20).with(func(n *Node) { n.PodCIDRs = []string{"x"} })
		p, err := Look(r.t.Context(), r.config, append(nodes(1, 7), bad))
		if err != nil {
			t.Fatal(err)
		}
		counts := map[vpc.Op]int{}
		for _, c := range p.Changes {
			counts[c.Op]++
			if c.Reason == "" {
				t.Errorf("%v has no reason", c)
			}
		}
		if want := map[vpc.Op]int{vpc.Create: 5, vpc.Replace: 2, vpc.Delete: 3}; !cmp.Equal(want, counts) {
			t.Errorf("%v, want %v", counts, want)
		}
		if len(p.Conflicts) != 1 || len(p.Routes) != 1 || p.Routes[0].Reason != InvalidPodCIDR {
			t.Errorf("conflicts %v, routes %v", p.Conflicts, p.Routes)
		}
		if n := len(r.cloud.wrote()) + r.shelf.writes; n > 0 {
			t.Errorf("%d writes", n)
		}

		p, err = Look(r.t.Context(), r.config, nil)
		if err != nil || len(p.Changes) != 0 || len(p.Held) != 5 {
			t.Errorf("an empty Node list: %d changes, %d held, %v", len(p.Changes), len(p.Held), err)
		}
	})
}

func TestNewRefusesBadConfig(t *testing.T) {
	_, err := New(Config{Ranges: []netip.Prefix{
		netip.MustParsePrefix("10.244.0.1/16"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::ffff:1.2.3.0/120"),
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"table", "owner", "host bits", "10.244.0.0/16", "overlap", "::ffff:1.2.3.0/120"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}
