package routes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A judge is a Prover that says what it is told to.
type judge struct {
	mu      sync.Mutex
	verdict error
	tries   []time.Time
}

func (j *judge) Prove(context.Context, Target) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tries = append(j.tries, time.Now())
	return j.verdict
}

func (j *judge) say(verdict error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.verdict = verdict
}

// gaps are the times between tries, which are then forgotten.
func (j *judge) gaps() (gaps []time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := 1; i < len(j.tries); i++ {
		gaps = append(gaps, j.tries[i].Sub(j.tries[i-1]))
	}
	j.tries = nil
	return gaps
}

// A gauge is a Meter that keeps everything.
type gauge struct {
	planned  []map[vpc.Op]int
	verified []time.Duration
}

func (g *gauge) Planned(sizes map[vpc.Op]int) { g.planned = append(g.planned, sizes) }
func (g *gauge) Verified(took time.Duration)  { g.verified = append(g.verified, took) }
func (g *gauge) sum(op vpc.Op) (n int) {
	for _, p := range g.planned {
		n += p[op]
	}
	return n
}

// R074: a route that carries packets some time after the cloud's yes counts from
// then on, at most 5 s later, and until then the reason says what is missing.
func TestProofIsRetried(t *testing.T) {
	for _, late := range []time.Duration{0, 500 * time.Millisecond, 20 * time.Second, 4 * time.Minute} {
		t.Run(late.String(), func(t *testing.T) {
			run(t, nil, func(r *rig) {
				j, g := &judge{verdict: errors.New("no route to host")}, &gauge{}
				r.config.Prover, r.config.Meter = j, g
				began := time.Now()
				time.AfterFunc(late, func() { j.say(nil) })
				if late == 0 {
					j.say(nil)
				}
				r.start(node(1))
				if late > 0 {
					passes(late - time.Millisecond)
					r.wantNode("n1", Unavailable, ProbeSilent, "no route to host", "source/destination check")
					r.wantRoute("n1", "10.244.1.0/24", Unreachable, ProbeSilent)
				}
				passes(5 * time.Second)
				r.wantNode("n1", Available, RouteReady)
				r.wantRoute("n1", "10.244.1.0/24", Verified, RouteReady, "n1 answered")
				if len(g.verified) != 1 || g.verified[0] < late || g.verified[0] > time.Since(began) {
					t.Errorf("times until verified are %v, want one between %v and %v", g.verified, late, time.Since(began))
				}
				if g.sum(vpc.Create) == 0 || g.sum(vpc.Delete) != 0 {
					t.Errorf("sizes of plans are %v", g.planned)
				}
			})
		})
	}
}

// Tries come quickly at first and rarely once the route is not new any more.
func TestRhythmOfProofs(t *testing.T) {
	run(t, nil, func(r *rig) {
		j := &judge{verdict: &WrongNodeError{Got: "n9", Want: "n1"}}
		r.config.Prover = j
		r.start(node(1))
		passes(20 * time.Second)
		r.wantNode("n1", Unavailable, ProbeWrongNode, "n9", "two nodes with one podCIDR")
		first := j.gaps()
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second}
		if diff := cmp.Diff(want, first[:4]); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		passes(10 * time.Minute)
		j.gaps()
		passes(2 * time.Minute)
		if later := j.gaps(); len(later) == 0 || slices.Min(later) != patientReproof {
			t.Errorf("after ten minutes: %v", later)
		}
		j.say(nil)
		passes(time.Minute)
		r.wantNode("n1", Available, RouteReady)
		j.gaps()
		passes(time.Hour)
		if n := len(j.gaps()); n < 4 || n > 7 {
			t.Errorf("%d proofs within an hour while all is well, want one in about %v", n+1, reproofEvery)
		}
	})
}

func TestSettle(t *testing.T) {
	run(t, nil, func(r *rig) {
		g := &gauge{}
		r.config.Settle, r.config.Meter = 30*time.Second, g
		r.start(node(1))
		passes(29 * time.Second)
		r.wantNode("n1", Unavailable, AwaitingProof)
		r.wantRoute("n1", "10.244.1.0/24", Programmed, AwaitingProof)
		passes(2 * time.Second)
		r.wantNode("n1", Available, RouteReady)
		if len(g.verified) != 1 || g.verified[0] < 30*time.Second {
			t.Errorf("times until verified are %v", g.verified)
		}
		// What is in place when a process starts has settled long ago.
		r.stop()
		r.notes = newNotebook()
		r.start(node(1))
		passes(time.Second)
		r.wantNode("n1", Available, RouteReady)
		if len(g.verified) != 1 {
			t.Errorf("a route that another process made was measured: %v", g.verified)
		}
	})
}

// Losing proof is told and counted; it makes the node unavailable only where
// that is asked for.
func TestLosingProof(t *testing.T) {
	for _, c := range []struct {
		situation string
		follows   bool
		verdict   Verdict
		reason    Reason
	}{
		{"told", false, Available, RouteReady},
		{"and followed", true, Unavailable, ProbeSilent},
	} {
		t.Run(c.situation, func(t *testing.T) {
			run(t, nil, func(r *rig) {
				j := &judge{}
				r.config.Prover, r.config.ConditionFollowsProof = j, c.follows
				r.start(node(1))
				passes(time.Minute)
				r.wantNode("n1", Available, RouteReady)
				j.say(errors.New("silence"))
				passes(time.Hour)
				r.wantRoute("n1", "10.244.1.0/24", Unreachable, ProbeSilent, "silence")
				r.wantNode("n1", c.verdict, c.reason)
				if n := r.notes.count(ProofLost); n != 1 || r.engine.Stats().ProofsLost != 1 {
					t.Errorf("told %d times, counted %d", n, r.engine.Stats().ProofsLost)
				}
				j.say(nil)
				passes(time.Minute)
				r.wantNode("n1", Available, RouteReady)
				r.wantRoute("n1", "10.244.1.0/24", Verified, RouteReady)
				if n := r.notes.count(ProofRegained); n != 1 {
					t.Errorf("the end of it was told %d times", n)
				}
				r.holds(serves(1, 1)...)
			})
		})
	}
}

// A new process does not call into question what works: the verdict that is there
// stands until several proofs have failed.
func TestProofAfterRestart(t *testing.T) {
	run(t, nil, func(r *rig) {
		j := &judge{}
		r.config.Prover = j
		r.start(node(1))
		passes(time.Minute)
		r.stop()
		j.say(errors.New("silence"))
		r.notes = newNotebook()
		r.start(node(1))
		passes(2 * time.Second)
		if v := r.notes.node("n1").Verdict; v != Undecided {
			t.Errorf("after one failure the verdict is %v", v)
		}
		passes(time.Minute)
		r.wantNode("n1", Unavailable, ProbeSilent)
	})
}
