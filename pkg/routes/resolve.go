package routes

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	// resolvers is how many goroutines ask the cloud for next hops at once.
	resolvers = 16
	// resolveChunk is how many next hops one of them asks for; most clouds
	// answer from one list of machines.
	resolveChunk = 64

	firstBackoff   = time.Second
	longestBackoff = 2 * time.Minute
)

// backoff is the wait after a number of earlier failures in a row, spread by a
// fifth either way so that what failed together does not come back together.
func backoff(earlier int) time.Duration {
	d := min(firstBackoff<<min(earlier, 10), longestBackoff)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// A hopTask is one next hop to ask for.
type hopTask struct {
	node   Node // as it was when the task was made
	family vpc.Family
	hop    *hop
}

// queueResolving asks for those next hops of a node that are due.
func (e *Engine) queueResolving(m *member) {
	for family, h := range m.hops {
		if h.due && !h.busy {
			h.due, h.busy = false, true
			e.toResolve = append(e.toResolve, &hopTask{m.Node, family, h})
		}
	}
}

// resolveAgain asks for every next hop anew, since machines change without
// their Nodes. What is known stays in force meanwhile.
func (e *Engine) resolveAgain() {
	for _, m := range e.members {
		for _, h := range m.hops {
			h.due = true
		}
		e.queueResolving(m)
	}
}

// startResolving asks for the next hops that are to be asked for now: as many
// as may be asked for at once, none while the cloud wants rest, and one a
// minute while it denies us.
func (e *Engine) startResolving(now time.Time) {
	if len(e.toResolve) == 0 {
		return
	}
	if now.Before(e.limiter.paused) {
		e.wake(e.limiter.paused)
		return
	}
	if !e.unknowing.pass(now) {
		e.wake(e.unknowing.next)
		return
	}
	size := resolveChunk
	if e.unknowing.closed {
		size = 1
	}
	ready, waiting := e.splitTasks(now)
	for len(ready) > 0 && e.resolving < resolvers {
		n := min(size, len(ready))
		e.resolve(ready[:n:n])
		ready = ready[n:]
		if e.unknowing.closed {
			break
		}
	}
	e.toResolve = append(ready, waiting...)
}

// splitTasks tells tasks that may be done now from those that have to wait
// after an error.
func (e *Engine) splitTasks(now time.Time) (ready, waiting []*hopTask) {
	for _, task := range e.toResolve {
		if now.Before(task.hop.retry) {
			e.wake(task.hop.retry)
			waiting = append(waiting, task)
			continue
		}
		if m := e.members[task.node.Name]; m != nil {
			task.node, task.hop.due = m.Node, false
		}
		ready = append(ready, task)
	}
	return ready, waiting
}

func (e *Engine) resolve(tasks []*hopTask) {
	e.resolving++
	e.do(func() func() {
		for _, task := range tasks {
			value, err := e.cfg.Table.NextHop(e.ctx, task.node.Node, task.family)
			if err == nil && value == "" {
				err = vpc.Errorf(vpc.Transient, "the cloud named no next hop for node %s", task.node.Name)
			}
			e.inbox.post(func() { e.resolved(task, value, err, time.Now()) })
		}
		return func() { e.resolving-- }
	})
}

// resolved takes the answer of the cloud for one next hop.
func (e *Engine) resolved(task *hopTask, value vpc.NextHop, err error, now time.Time) {
	h := task.hop
	h.busy = false
	m := e.members[task.node.Name]
	if m == nil || m.hops[task.family] != h {
		return // the Node is gone
	}
	if !m.sameMachine(task.node) {
		e.queueResolving(m) // the answer is about what the Node was before
		return
	}
	switch {
	case err == nil:
		e.unknowing.open()
		e.learn(m, task.family, value, nil)
		h.attempts = 0
	case vpc.IsCancelled(err):
		h.due = true
	default:
		e.unresolved(m, task, err, now)
	}
}

// unresolved decides what a failed answer means. Only an answer about the node
// itself changes what is known; anything else is asked again.
func (e *Engine) unresolved(m *member, task *hopTask, err error, now time.Time) {
	h := task.hop
	wait := backoff(h.attempts)
	h.attempts++
	switch vpc.ClassOf(err) {
	case vpc.NotFound, vpc.Invalid:
		// Waits for the Node to change, or for the next full comparison.
		e.learn(m, task.family, "", err)
		return
	case vpc.Throttled:
		hint, _ := vpc.RetryAfter(err)
		e.throttled(now, hint, err)
		wait = max(wait, hint)
	case vpc.Denied:
		e.unknowing.close(now)
		wait = 0
	}
	if h.value == "" {
		e.learn(m, task.family, "", err)
	}
	h.retry = now.Add(wait)
	h.busy = true
	e.toResolve = append(e.toResolve, task)
}

// learn notes what a node's next hop is, or why there is none.
func (e *Engine) learn(m *member, family vpc.Family, value vpc.NextHop, err error) {
	h := m.hops[family]
	same := h.asked && h.value == value && fmt.Sprint(h.err) == fmt.Sprint(err)
	h.value, h.err, h.asked = value, err, true
	if same {
		return
	}
	for _, c := range m.claims {
		if vpc.FamilyOf(c.dest) == family {
			e.dirty[c.dest] = true
		}
	}
}
