package cloud

import (
	"slices"
	"sync"
	"time"
)

// A Clock is the time of an emulator.
type Clock interface {
	Now() time.Time
	// AfterFunc runs g once d has passed.
	AfterFunc(d time.Duration, g func())
}

// Wall is the real time (the virtual one inside a testing/synctest bubble).
var Wall Clock = wall{}

type wall struct{}

func (wall) Now() time.Time                      { return time.Now() }
func (wall) AfterFunc(d time.Duration, g func()) { time.AfterFunc(d, g) }

// A StepClock stands still until it is stepped.
type StepClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []timer
}

type timer struct {
	at  time.Time
	run func()
}

// NewStepClock returns a StepClock that shows start.
func NewStepClock(start time.Time) *StepClock { return &StepClock{now: start} }

// Now returns the time shown.
func (c *StepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc runs g during the Step that reaches now + d, on its goroutine, or at
// once when d is not positive.
func (c *StepClock) AfterFunc(d time.Duration, g func()) {
	if d <= 0 {
		g()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, timer{c.now.Add(d), g})
}

// Step moves the clock on by d and runs what falls due, in the order of time.
func (c *StepClock) Step(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		i := c.next(end)
		if i < 0 {
			break
		}
		t := c.timers[i]
		c.timers = slices.Delete(c.timers, i, i+1)
		c.now = t.at
		c.mu.Unlock()
		t.run()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// next is the index of the first timer due by end, or -1.
func (c *StepClock) next(end time.Time) int {
	found := -1
	for i, t := range c.timers {
		if !t.at.After(end) && (found < 0 || t.at.Before(c.timers[found].at)) {
			found = i
		}
	}
	return found
}

// A Limiter is a rate limit.
type Limiter interface {
	// Take takes one call at now and returns 0, or takes none and returns how
	// long to wait for one. Times do not go backwards.
	Take(now time.Time) (wait time.Duration)
}

// A Bucket is a token bucket. It starts full.
type Bucket struct {
	// PerSecond is how many tokens a second are filled in, more than 0.
	PerSecond float64
	// Burst is how many it holds, at least 1.
	Burst int

	tokens float64
	last   time.Time
}

// Take takes a token.
func (b *Bucket) Take(now time.Time) time.Duration {
	if b.last.IsZero() {
		b.tokens = float64(b.Burst)
	} else if d := now.Sub(b.last); d > 0 {
		b.tokens = min(float64(b.Burst), b.tokens+d.Seconds()*b.PerSecond)
	}
	b.last = now
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	return max(1, time.Duration((1-b.tokens)/b.PerSecond*float64(time.Second)))
}

// A Window allows a number of calls in each stretch of time, counted anew at its
// boundary: with a minute, at every full minute.
type Window struct {
	Calls int
	Every time.Duration

	start time.Time
	used  int
}

// Take takes one call of the window that now falls into.
func (w *Window) Take(now time.Time) time.Duration {
	if start := now.Truncate(w.Every); !start.Equal(w.start) {
		w.start, w.used = start, 0
	}
	if w.used < w.Calls {
		w.used++
		return 0
	}
	return w.start.Add(w.Every).Sub(now)
}

// A Timeline keeps the versions of a state, so that an emulator can answer with
// an older one: what is written now is seen later. It is not safe for
// concurrent use.
type Timeline[T any] struct {
	versions []version[T]
}

type version[T any] struct {
	at    time.Time
	state T
}

// Put adds the state that holds from at on; at does not go backwards. What is
// older than at by more than keep is forgotten.
func (l *Timeline[T]) Put(at time.Time, state T, keep time.Duration) {
	l.versions = append(l.versions, version[T]{at, state})
	for len(l.versions) > 1 && !l.versions[1].at.After(at.Add(-keep)) {
		l.versions = l.versions[1:]
	}
}

// At returns the state that held at a time, and the oldest known one for a time
// before all. It is the zero value before the first Put.
func (l *Timeline[T]) At(at time.Time) (state T) {
	for i, v := range l.versions {
		if i > 0 && v.at.After(at) {
			break
		}
		state = v.state
	}
	return state
}
