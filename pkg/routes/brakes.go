package routes

import (
	"slices"
	"time"
)

// A gate stops calls that have no chance: after an error that concerns the
// whole table it lets one try through a minute until one succeeds.
type gate struct {
	closed bool
	next   time.Time // of the next try
}

// tryInterval is how long a closed gate keeps everybody out between two tries.
const tryInterval = time.Minute

// pass is true when a call may be made now, and counts it as the try.
func (g *gate) pass(now time.Time) bool {
	if !g.closed {
		return true
	}
	if now.Before(g.next) {
		return false
	}
	g.next = now.Add(tryInterval)
	return true
}

func (g *gate) close(now time.Time) {
	g.closed = true
	g.next = now.Add(tryInterval)
}

func (g *gate) open() { g.closed = false }

// A brake limits deletions: so many in one window, whatever the reason.
type brake struct {
	window time.Duration
	times  []time.Time // of the deletions in the window, oldest first
}

// room is how many more deletions are allowed now, where at most limit may fall
// into one window.
func (b *brake) room(now time.Time, limit int) int {
	old := 0
	for old < len(b.times) && now.Sub(b.times[old]) >= b.window {
		old++
	}
	b.times = slices.Delete(b.times, 0, old)
	return limit - len(b.times)
}

func (b *brake) took(now time.Time) { b.times = append(b.times, now) }

// freed is when the next deletion will be allowed, given that none is now.
func (b *brake) freed() time.Time {
	if len(b.times) == 0 {
		return time.Time{}
	}
	return b.times[0].Add(b.window)
}

// The limit on writing one place again and again for the same wish.
const (
	rewriteLimit  = 3
	rewriteWindow = 10 * time.Minute
)

// rewrites are the accepted writes of one place that had the same wish. A wish
// that changes (another node, another next hop, nobody) starts afresh: only
// somebody who undoes our writes makes us write the same thing twice.
type rewrites struct {
	wish  string
	times []time.Time
}

// spent is true when the place may not be written for this wish now; until says
// when it may again.
func (r *rewrites) spent(now time.Time, wish string) (until time.Time, spent bool) {
	if r == nil || r.wish != wish || len(r.times) < rewriteLimit {
		return time.Time{}, false
	}
	until = r.times[len(r.times)-rewriteLimit].Add(rewriteWindow)
	return until, now.Before(until)
}

func (r *rewrites) wrote(now time.Time, wish string) {
	if r.wish != wish {
		r.wish, r.times = wish, nil
	}
	r.times = append(r.times, now)
	r.times = r.times[max(0, len(r.times)-rewriteLimit):]
}

// old is true when the writes are too long ago to matter.
func (r *rewrites) old(now time.Time) bool {
	return len(r.times) == 0 || now.Sub(r.times[len(r.times)-1]) >= rewriteWindow
}
