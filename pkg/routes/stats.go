package routes

import (
	"maps"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// Stats are figures for metrics.
type Stats struct {
	// Routes counts routes by state.
	Routes map[State]int
	// Nodes is the number of Nodes known, Unavailable of those without a way.
	Nodes, Unavailable int
	// Tables says how full the route tables are.
	Tables []vpc.TableLimits
	// Pending and InFlight are writes that wait and calls under way.
	Pending, InFlight int
	// Held is the number of deletions that a brake holds, HeldBy that of writes of
	// any kind which something holds, by what it is.
	Held   int
	HeldBy map[Reason]int
	// Conflicts is the number of entries that are in the way or inside our
	// ranges.
	Conflicts int
	// Drift counts routes of ours that somebody else changed or removed, and
	// ProofsLost those that stopped answering.
	Drift, ProofsLost int
	// Rate is the number of calls to the cloud per second allowed at present.
	Rate float64
	// Compared is when the last good full list began; zero before the first.
	Compared time.Time
	// ListError is why the tables cannot be read; empty when they can.
	ListError string
	// Beat is when the engine last looked around; it does so at least every
	// minute while it is well.
	Beat time.Time
}

// Stats returns the figures as of the last step.
func (e *Engine) Stats() Stats {
	e.statsLock.Lock()
	defer e.statsLock.Unlock()
	s := e.shown
	s.Routes, s.HeldBy = maps.Clone(s.Routes), maps.Clone(s.HeldBy)
	return s
}

// A Meter takes figures that are no state. It is called by the engine's one
// goroutine: it must not block and must not call the engine.
type Meter interface {
	// Planned is told the size of each plan that has changes, by operation. A
	// change that has to wait is in every plan until it is made.
	Planned(sizes map[vpc.Op]int)
	// Verified is told how long it took from a podCIDR being known until its
	// routes counted, once for each that this process made.
	Verified(took time.Duration)
}

// beat is the longest time between two steps.
const beat = 30 * time.Second

// count brings the figures up to date and shows them.
func (e *Engine) count(now time.Time) {
	s := &e.stats
	s.Nodes, s.Conflicts = len(e.members), len(e.reports.conflicts)
	s.Tables, s.Rate, s.Compared, s.Beat = e.limits.Tables, e.limiter.rate, e.listing.seen, now
	s.ListError = ""
	if e.listing.err != nil {
		s.ListError = e.listing.err.Error()
	}
	s.InFlight, s.Pending, s.Held = e.inFlight, 0, 0
	s.HeldBy = map[Reason]int{RouteContended: 0, DeletionHeld: 0} // the brakes are told of at all times
	for _, w := range e.queue {
		if w.over || w.busy {
			continue
		}
		if w.held != "" {
			s.HeldBy[w.held]++
		}
		switch w.held {
		case DeletionHeld:
			s.Held++
		default:
			s.Pending++
		}
	}
	e.statsLock.Lock()
	defer e.statsLock.Unlock()
	e.shown = *s
	e.shown.Routes, e.shown.HeldBy = maps.Clone(s.Routes), maps.Clone(s.HeldBy)
	e.shown.Tables = slices.Clone(s.Tables)
}
