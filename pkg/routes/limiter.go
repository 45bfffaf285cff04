package routes

import "time"

// A limiter is the one rate at which an installation calls its cloud: a token
// bucket whose rate follows what the cloud bears. It is told the time, so that
// it can be tested without any. Not for concurrent use.
type limiter struct {
	// most and least bound the rate, in calls per second.
	most, least float64
	rate        float64
	// ceiling is a rate at which the cloud refused; near it the rate grows
	// slowly, so that finding the limit costs few refused calls. 0: none known.
	ceiling float64
	tokens  float64
	updated time.Time // when tokens were last counted
	grown   time.Time // when the rate last rose
	paused  time.Time // no call before this
	refused int       // refusals in a row, for pauses without a hint
}

// The adaptation. A refusal costs a fifth of the rate at once; 20 s of success
// bring it back, the last tenth below a known ceiling only in two minutes.
const (
	backOffFactor  = 0.8
	growth         = 0.25 / 20   // of most, per second
	cautiousGrowth = 0.10 / 120  // of most, per second
	cautiousBelow  = 0.9         // of the ceiling
	firstPause     = time.Second // without a hint; doubles with each refusal in a row
	longestPause   = time.Minute
	// burst is how many calls may follow each other at once after a rest. Clouds
	// count calls per second, so a burst on top of a full rate would be refused.
	burst = 1
)

func newLimiter(rate float64) *limiter {
	return &limiter{most: rate, least: min(rate, 0.1), rate: rate, tokens: burst}
}

// next is when the next call may be made; not after now means at once.
func (l *limiter) next(now time.Time) time.Time {
	if now.Before(l.paused) {
		return l.paused
	}
	l.count(now)
	if l.tokens >= 1 {
		return now
	}
	return now.Add(time.Duration((1-l.tokens)/l.rate*float64(time.Second)) + 1)
}

// take spends n calls. The bucket goes into debt for more than it holds.
func (l *limiter) take(now time.Time, n int) {
	l.count(now)
	l.tokens -= float64(n)
}

func (l *limiter) count(now time.Time) {
	if now.Before(l.updated) {
		return
	}
	if !l.updated.IsZero() {
		l.tokens = min(burst, l.tokens+now.Sub(l.updated).Seconds()*l.rate)
	}
	l.updated = now
}

// throttled slows down after a refusal. hint is how long the cloud asked to
// wait, 0 if it did not say. Refusals of calls that were already under way when
// the pause began count as one.
func (l *limiter) throttled(now time.Time, hint time.Duration) {
	l.count(now)
	if now.Before(l.paused) {
		if hint > 0 && now.Add(hint).After(l.paused) {
			l.paused = now.Add(hint)
		}
		return
	}
	if hint == 0 {
		hint = min(firstPause<<min(l.refused, 10), longestPause)
	}
	l.refused++
	l.ceiling = l.rate
	l.rate = max(l.least, l.rate*backOffFactor)
	l.paused = now.Add(hint)
	l.grown = l.paused
	l.tokens = min(l.tokens, 0)
	l.updated = l.paused
}

// succeeded lets the rate grow after an accepted call.
func (l *limiter) succeeded(now time.Time) {
	l.refused = 0
	if l.rate >= l.most || !now.After(l.grown) {
		return
	}
	speed := growth
	if l.ceiling > 0 && l.rate >= l.ceiling*cautiousBelow {
		speed = cautiousGrowth
	}
	l.count(now)
	// A long rest between two calls is no evidence for a fast rate.
	elapsed := min(now.Sub(l.grown), time.Second).Seconds()
	l.rate = min(l.most, l.rate+elapsed*speed*l.most)
	l.grown = now
	if l.rate >= l.most {
		l.ceiling = 0
	}
}
