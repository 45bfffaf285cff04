package routes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Prover sends packets over routes.
type Prover interface {
	// Prove returns nil when the right node answers over the route to target's
	// destination. A WrongNodeError means that another one did; any other error
	// is silence, and says what was seen. It ends within seconds.
	Prove(ctx context.Context, target Target) error
}

// A Target is the node that should answer over a route.
type Target struct {
	Node, UID   string
	Destination netip.Prefix
}

// A WrongNodeError is the answer of a node that should not have got the packet.
type WrongNodeError struct {
	// Got and Want name the nodes.
	Got, Want string
}

// Error says who answered.
func (e *WrongNodeError) Error() string {
	return fmt.Sprintf("node %s answered instead of %s", e.Got, e.Want)
}

// The rhythm of proofs.
const (
	provers        = 64               // at once
	firstReproof   = time.Second      // after the first failure; doubles
	eagerReproof   = 4 * time.Second  // at most, while a route is new
	eagerFor       = 5 * time.Minute  // how long a route is new
	patientReproof = 30 * time.Second // afterwards
	reproofEvery   = 10 * time.Minute // while it works
	toleratedFails = 3                // before a verdict of before our start is changed
)

// A proof is how far the proof of one claim's routes is.
type proof struct {
	// generation changes when answers under way are no longer about this route.
	generation int
	active     bool // the routes are in place, and proofs are being made
	inherited  bool // they were in place when this process first looked
	queued     bool
	since      time.Time // routes in place
	proved     time.Time // last success; zero when there was none
	fails      int       // in a row
	err        error     // of the last try; nil after a success
}

// ok is true when the routes count.
func (p proof) ok() bool { return p.active && p.err == nil && !p.proved.IsZero() }

// startProving begins with routes that came into place, ends with those that
// are so no more, and sends what packets are due.
func (e *Engine) startProving(now time.Time) {
	for dest := range e.touched {
		for _, c := range e.claims.get(dest) {
			e.followRoute(c, now)
		}
	}
	for len(e.toProve) > 0 && e.proving < provers {
		c := e.toProve[0]
		e.toProve = e.toProve[1:]
		e.prove(c)
	}
}

// followRoute starts or stops the proofs of a claim.
func (e *Engine) followRoute(c *claim, now time.Time) {
	placed := c.holds() && e.placed(c)
	switch {
	case placed && !c.proof.active:
		inherited := !e.everChanged(c)
		c.proof = proof{generation: c.proof.generation + 1, active: true, inherited: inherited, since: now}
		e.firstProof(c, now)
	case !placed && c.proof.active:
		c.proof = proof{generation: c.proof.generation + 1}
	}
}

// placed is true when every table leads to the claim's node.
func (e *Engine) placed(c *claim) bool {
	if c.hop().value == "" || len(e.tables) == 0 {
		return false
	}
	for _, table := range e.tables {
		place := Place{table, c.dest}
		if !e.view.leadsTo(place, c.hop().value) || c.blocked[table] != "" {
			return false
		}
		if w := e.writes[place]; w != nil && w.Op != vpc.Delete {
			return false
		}
	}
	return true
}

// everChanged is true when this process wrote one of the claim's routes.
func (e *Engine) everChanged(c *claim) bool {
	for _, table := range e.tables {
		if _, found := e.lastChange[Place{table, c.dest}]; found {
			return true
		}
	}
	return false
}

func (e *Engine) firstProof(c *claim, now time.Time) {
	switch {
	case e.cfg.Prover != nil:
		e.queueProof(c)
	case e.cfg.Settle > 0 && !c.proof.inherited:
		e.after(e.cfg.Settle, c, func() { e.counts(c) })
	default:
		e.proven(c, now)
	}
}

// counts makes a route count without a packet.
func (e *Engine) counts(c *claim) {
	e.proven(c, time.Now())
	e.touch(c.dest)
}

// proven notes a proof, and tells how long the first one of a route of ours took.
func (e *Engine) proven(c *claim, now time.Time) {
	c.proof.proved = now
	if !c.timed && e.everChanged(c) && e.cfg.Meter != nil {
		e.cfg.Meter.Verified(now.Sub(c.known))
	}
	c.timed = true
}

func (e *Engine) queueProof(c *claim) {
	if !c.proof.queued {
		c.proof.queued = true
		e.toProve = append(e.toProve, c)
	}
}

// after runs f unless the claim's route has changed meanwhile.
func (e *Engine) after(d time.Duration, c *claim, f func()) {
	generation := c.proof.generation
	time.AfterFunc(d, func() {
		e.inbox.post(func() {
			if c.proof.generation == generation {
				f()
			}
		})
	})
}

func (e *Engine) prove(c *claim) {
	c.proof.queued = false
	if !c.proof.active {
		return
	}
	generation := c.proof.generation
	target := Target{c.node.Name, c.node.UID, c.dest}
	e.proving++
	e.do(func() func() {
		err := e.cfg.Prover.Prove(e.ctx, target)
		return func() {
			e.proving--
			if c.proof.generation == generation && !vpc.IsCancelled(err) {
				e.tried(c, err, time.Now())
			}
		}
	})
}

// tried takes the outcome of one proof and plans the next.
func (e *Engine) tried(c *claim, err error, now time.Time) {
	p := &c.proof
	worked := !p.proved.IsZero()
	p.err = err
	if err == nil {
		if worked && p.fails > 0 {
			e.observe(Event{Kind: ProofRegained, Node: c.node.Name, Destination: c.dest, Message: fmt.Sprintf("node %s answers over %s again", c.node.Name, c.dest)})
		}
		p.fails, p.inherited = 0, false
		e.proven(c, now)
		e.after(reproofEvery-reproofEvery/10+rand.N(reproofEvery/5), c, func() { e.queueProof(c) })
	} else {
		p.fails++
		if worked && p.fails == 1 {
			e.stats.ProofsLost++
			e.observe(Event{Kind: ProofLost, Node: c.node.Name, Destination: c.dest, Message: e.unproved(c)})
		}
		e.after(e.reproof(p, now), c, func() { e.queueProof(c) })
	}
	e.touch(c.dest)
	// The verdict depends on how many failed, even where the route's state does not.
	e.reports.touch(c.node.Name)
}

func (e *Engine) reproof(p *proof, now time.Time) time.Duration {
	if p.proved.IsZero() && now.Sub(p.since) < eagerFor {
		return min(firstReproof<<min(p.fails-1, 10), eagerReproof)
	}
	return patientReproof
}

// unproved says what a packet met, with the likely causes.
func (e *Engine) unproved(c *claim) string {
	var wrong *WrongNodeError
	if errors.As(c.proof.err, &wrong) {
		return fmt.Sprintf("a packet to %s went astray: %v; likely causes: two nodes with one podCIDR, a recycled address, or a more specific route", c.dest, wrong)
	}
	return fmt.Sprintf("no answer from node %s over %s (%v); likely causes: source/destination check on, its subnet attached to another route table, a security group, forwarding off, or no agent on the node",
		c.node.Name, c.dest, c.proof.err)
}

// provenReason is the reason word of a failed proof.
func provenReason(err error) Reason {
	var wrong *WrongNodeError
	if errors.As(err, &wrong) {
		return ProbeWrongNode
	}
	return ProbeSilent
}
