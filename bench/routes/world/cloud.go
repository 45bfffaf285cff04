// Package world is what both route controllers run in while they are measured:
// one emulated cloud with one route table, one API server with Nodes, and the
// clock. It knows neither controller, and must treat both alike.
package world

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Terms are what a cloud is like.
type Terms struct {
	// Rate is how many calls per second it accepts, and how many at once after a
	// rest.
	Rate float64
	// Write and List are how long a call takes to answer.
	Write, List time.Duration
	// Lag is how long a list does not show a write that was answered.
	Lag time.Duration
	// Quota is the largest number of routes.
	Quota int
	// Failing is the share of calls that fail; every other failed write has had
	// its effect all the same.
	Failing float64
}

// The errors of a Cloud.
var (
	ErrThrottled = errors.New("rate exceeded")
	ErrQuota     = errors.New("the table is full")
	ErrTaken     = errors.New("the table has a route to this destination already")
	ErrNotFound  = errors.New("no such route")
	ErrFailed    = errors.New("internal error")
)

// A Route is an entry of the table.
type Route struct {
	Destination netip.Prefix
	// Machine is the next hop: the id of a node's machine.
	Machine string
}

// Counts are what a Cloud has seen.
type Counts struct {
	Lists, Writes int
	// Rejected are calls over the rate; they are counted as lists and writes too.
	Rejected int
	// Duplicates are creates of a route that was there or under way.
	Duplicates int
	// First and Latest are when the first and the latest write came, Last is when
	// the latest route was made.
	First, Latest, Last time.Time
}

// Calls is the number of calls of every kind.
func (c Counts) Calls() int { return c.Lists + c.Writes }

// A Cloud is a route table behind an interface as clouds have them: with an
// allowance of calls, slow, and showing the past.
type Cloud struct {
	mu      sync.Mutex
	terms   Terms
	tokens  float64 // of the rate, as of updated
	updated time.Time
	routes  map[netip.Prefix]*entry
	making  map[Route]int // creates under way
	counts  Counts
	chances *rand.Rand
	failed  int
}

// An entry is shown from one time until another.
type entry struct {
	machine string
	from    time.Time
	until   time.Time // zero while it is there
}

// NewCloud returns a cloud whose table holds some routes already.
func NewCloud(terms Terms, routes ...Route) *Cloud {
	c := &Cloud{terms: terms, routes: map[netip.Prefix]*entry{}, making: map[Route]int{}, chances: rand.New(rand.NewPCG(1, 2))}
	for _, r := range routes {
		c.routes[r.Destination] = &entry{machine: r.Machine}
	}
	return c
}

// Change changes what the cloud is like, and begins to count anew.
func (c *Cloud) Change(terms Terms) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terms, c.counts = terms, Counts{}
}

// Counts returns what was seen so far.
func (c *Cloud) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Quota is the largest number of routes, and how many there are.
func (c *Cloud) Quota() (used, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used(), c.terms.Quota
}

func (c *Cloud) used() (n int) {
	for _, e := range c.routes {
		if e.until.IsZero() {
			n++
		}
	}
	return n
}

// List returns the routes as they were some time ago.
func (c *Cloud) List(ctx context.Context) ([]Route, error) {
	fails, err := c.enter(func() { c.counts.Lists++ })
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, c.terms.List); err != nil || fails != sound {
		return nil, errors.Join(ErrFailed, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	shown := make([]Route, 0, len(c.routes))
	for dest, e := range c.routes {
		switch {
		case now.Before(e.from):
		case e.until.IsZero() || now.Before(e.until):
			shown = append(shown, Route{dest, e.machine})
		default:
			delete(c.routes, dest)
		}
	}
	return shown, nil
}

// Create makes a route; one that is there already is as good as made.
func (c *Cloud) Create(ctx context.Context, r Route) error {
	c.mu.Lock()
	if e := c.routes[r.Destination]; e != nil && e.until.IsZero() && e.machine == r.Machine || c.making[r] > 0 {
		c.counts.Duplicates++
	}
	c.making[r]++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.making[r]--; c.making[r] == 0 {
			delete(c.making, r)
		}
	}()
	return c.write(ctx, func(now time.Time) error {
		e := c.routes[r.Destination]
		switch {
		case e != nil && e.until.IsZero() && e.machine == r.Machine:
			return nil
		case e != nil && e.until.IsZero():
			return ErrTaken
		case c.terms.Quota > 0 && c.used() >= c.terms.Quota:
			return ErrQuota
		}
		c.routes[r.Destination] = &entry{machine: r.Machine, from: now.Add(c.terms.Lag)}
		c.counts.Last = now
		return nil
	})
}

// Delete removes a route.
func (c *Cloud) Delete(ctx context.Context, r Route) error {
	return c.write(ctx, func(now time.Time) error {
		e := c.routes[r.Destination]
		if e == nil || !e.until.IsZero() || e.machine != r.Machine {
			return ErrNotFound
		}
		e.until = now.Add(c.terms.Lag)
		return nil
	})
}

// write has an effect when the call is answered, whether or not the caller
// still waits.
func (c *Cloud) write(ctx context.Context, effect func(now time.Time) error) error {
	fails, err := c.enter(func() {
		c.counts.Writes++
		c.counts.Latest = time.Now()
		if c.counts.First.IsZero() {
			c.counts.First = c.counts.Latest
		}
	})
	if err != nil {
		return err
	}
	late := pause(ctx, c.terms.Write)
	if fails == refused {
		return ErrFailed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err = effect(time.Now())
	if fails == lost {
		err = ErrFailed
	}
	return errors.Join(err, late)
}

// A fate is what becomes of a call.
type fate int

const (
	sound   fate = iota
	refused      // without effect
	lost         // with its effect, but not its answer
)

// enter counts a call and says whether the cloud takes it.
func (c *Cloud) enter(count func()) (fate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count()
	now := time.Now()
	c.tokens = min(c.terms.Rate, c.tokens+now.Sub(c.updated).Seconds()*c.terms.Rate)
	c.updated = now
	if c.tokens < 1 {
		c.counts.Rejected++
		return sound, ErrThrottled
	}
	c.tokens--
	if c.chances.Float64() >= c.terms.Failing {
		return sound, nil
	}
	if c.failed++; c.failed%2 == 0 {
		return lost, nil
	}
	return refused, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
