// Package cloud is the frame that the emulators of cloud APIs stand in: the log
// of calls, rate limits, faults on demand, late effects and the hook that
// programs a kernel with the emulated route table. It knows no cloud: what a
// call means, and how an answer looks on the wire, is said by the emulator (one
// package below this one per cloud). It is for tests and for trying the product
// by hand; nothing of the product may import it.
//
// An emulator embeds a Frame and sends every request through Handle:
//
//	type Emulator struct {
//		*cloud.Frame
//		mu sync.Mutex // guards the emulated state
//	}
//
//	func New() *Emulator {
//		e := &Emulator{Frame: cloud.New()}
//		e.Encode = encode       // how this cloud spells an answer
//		e.Throttled = throttled // what it says to a call over its rate
//		return e
//	}
//
//	func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
//		e.Handle(w, r, cloud.Call{Operation: "CreateRoute", Write: true}, func() cloud.Answer {
//			// change the state, then:
//			e.Effect(e.routes())
//			return cloud.Answer{Body: …}
//		})
//	}
//
// Time is that of the Frame's Clock, so a test may step it; inside a
// testing/synctest bubble the wall clock is virtual already, and Direct carries
// requests without a socket.
package cloud

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Call is one request as the log keeps it.
type Call struct {
	// At is when the request arrived.
	At time.Time
	// Operation is the API's name of the call, for example "CreateRoutes".
	Operation string
	// Write is true for a call that changes something.
	Write bool
	// Detail says what it was about, in the emulator's words.
	Detail string
	// Client is the user agent, or what stands for it in this API.
	Client string
	// Code is the error code answered, "" for success, and "lost" when the
	// client got no answer.
	Code string
	// Rejected is true when the call was over its rate.
	Rejected bool
}

// An Answer is what a call comes to, before the emulator spells it.
type Answer struct {
	// Status is the HTTP status; 0 leaves it to the emulator.
	Status int
	// Code is the API's error code, and "" for success.
	Code string
	// Message explains Code.
	Message string
	// Header is added to the response.
	Header http.Header
	// Body is the answer's content, to be encoded as this API does.
	Body any
}

// A Fault is trouble on demand. Of several that match a call, the first
// injected one that is due applies.
type Fault struct {
	// Operation is the path.Match pattern of the calls; "" is every call.
	Operation string
	// Writes spares the calls that change nothing.
	Writes bool
	// After is how many matching calls pass before the fault is due.
	After int
	// Times is how many calls it hits; 0 is all of them.
	Times int
	// Rate is the share of the due calls that it hits, 0 < Rate < 1; 0 is all.
	Rate float64

	// Delay is waited before anything else happens, or until the client goes.
	Delay time.Duration
	// Answer is given instead of carrying the call out.
	Answer *Answer
	// Page is an HTTP status given with an HTML page instead of carrying the
	// call out, as a proxy in front of the API would; 0 is none.
	Page int
	// Lost carries the call out and then drops the connection.
	Lost bool
}

// A Frame is the part of an emulator that is the same for every cloud. Its
// fields are set before the first request; its methods may be called at any
// time.
type Frame struct {
	// Clock is the emulator's time; New sets the wall clock.
	Clock Clock
	// Encode writes an answer as this API spells it.
	Encode func(w http.ResponseWriter, r *http.Request, a Answer)
	// Throttled is the answer to a call that is over its rate; wait is the time
	// until it would not be.
	Throttled func(operation string, wait time.Duration) Answer
	// Latency is how long every call takes at least.
	Latency time.Duration
	// EffectDelay is how long after the answer a change takes effect on packets.
	EffectDelay time.Duration
	// Program puts routes into effect: the whole table each time. Calls never
	// overlap and never go back to an older table. Nil programs nothing.
	Program func(routes []Route)

	mu     sync.Mutex
	calls  []Call
	limits []limit
	faults []*fault
	random *rand.Rand
	watch  func(Call)

	effects
}

// A Stand is an emulator that is run by hand.
type Stand struct {
	*Frame
	// Handler answers the calls.
	Handler http.Handler
	// Env and Flags make route-controller talk to the handler at url: variables as
	// NAME=value, some of which may name files that Env puts into dir, and flags
	// that say neither which Nodes there are nor which ranges the cluster has.
	Env   func(url, dir string) []string
	Flags func(url string) []string
	// Note is what else there is to know; empty for nothing.
	Note string
	// ProviderID is that of the machine with this number, the first being 1, where
	// the cloud's machines are known by that alone; nil elsewhere.
	ProviderID func(number int) string
}

// Usage returns the lines that make the product talk to the handler at url.
func (s Stand) Usage(url string) string {
	var b strings.Builder
	for _, v := range s.Env(url, os.TempDir()) {
		fmt.Fprintf(&b, "export %s\n", v)
	}
	fmt.Fprintf(&b, "# route-controller --nodes nodes.yaml --cluster-cidr 10.244.0.0/16 --ledger ledger.json \\\n#   %s", strings.Join(s.Flags(url), " "))
	if s.Note != "" {
		fmt.Fprintf(&b, "\n# %s", s.Note)
	}
	return b.String()
}

type limit struct {
	operations []string
	limiter    Limiter
}

type fault struct {
	Fault
	seen, hit int
}

// New returns a Frame on the wall clock, without limits and faults.
func New() *Frame {
	return &Frame{Clock: Wall, random: rand.New(rand.NewPCG(1, 2))}
}

// Limit lets the calls that match any of the patterns through at the limiter's
// rate, all of them together. A call that several limits match must pass each.
func (f *Frame) Limit(l Limiter, operations ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = append(f.limits, limit{operations, l})
}

// Inject arms a fault and returns the function that disarms it.
func (f *Frame) Inject(x Fault) (disarm func()) {
	if x.Operation == "" {
		x.Operation = "*"
	}
	armed := &fault{Fault: x}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, armed)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(x *fault) bool { return x == armed })
	}
}

// Handle takes one request through the log, the limits and the faults, and
// carries it out unless one of them forbids it.
func (f *Frame) Handle(w http.ResponseWriter, r *http.Request, c Call, carryOut func() Answer) {
	trouble, wait := f.admit(&c)
	f.pause(r, f.Latency+trouble.Delay)
	var a Answer
	switch {
	case wait > 0:
		c.Rejected = true
		a = f.Throttled(c.Operation, wait)
	case trouble.Answer != nil:
		a = *trouble.Answer
	case trouble.Page != 0:
		a.Code = fmt.Sprint(trouble.Page)
	default:
		a = carryOut()
	}
	c.Code = a.Code
	if trouble.Lost {
		c.Code = "lost"
	}
	f.record(c)
	switch {
	case trouble.Lost:
		panic(http.ErrAbortHandler) // net/http drops the connection without a word
	case trouble.Page != 0 && !c.Rejected:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(trouble.Page)
		fmt.Fprintf(w, "<html><body><h1>%d %s</h1></body></html>\n", trouble.Page, http.StatusText(trouble.Page))
	default:
		f.Encode(w, r, a)
	}
}

// admit notes the time of a call and finds the fault that hits it, and how much
// too early the call is.
func (f *Frame) admit(c *Call) (trouble Fault, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.At = f.Clock.Now() // read under the lock: limiters need times in order
	for _, l := range f.limits {
		if matches(c.Operation, l.operations...) {
			wait = max(wait, l.limiter.Take(c.At))
		}
	}
	for _, x := range f.faults {
		if !matches(c.Operation, x.Operation) || x.Writes && !c.Write {
			continue
		}
		x.seen++
		due := x.seen > x.After && (x.Times == 0 || x.hit < x.Times)
		if due && (x.Rate == 0 || f.random.Float64() < x.Rate) {
			x.hit++
			return x.Fault, wait
		}
	}
	return Fault{}, wait
}

// pause waits d of the emulator's time, or until the client goes.
func (f *Frame) pause(r *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	done := make(chan struct{})
	f.Clock.AfterFunc(d, func() { close(done) })
	select {
	case <-done:
	case <-r.Context().Done():
	}
}

func (f *Frame) record(c Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	if f.watch != nil {
		f.watch(c)
	}
}

// Watch has see called with every call as it is logged, one at a time, until it
// is called with nil.
func (f *Frame) Watch(see func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = see
}

// Calls returns the log of the calls that match any of the patterns, or of all
// calls when there is none, in the order of their answers.
func (f *Frame) Calls(operations ...string) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []Call
	for _, c := range f.calls {
		if len(operations) == 0 || matches(c.Operation, operations...) {
			found = append(found, c)
		}
	}
	return found
}

// Writes returns how many calls that change something were received, failed and
// rejected ones included.
func (f *Frame) Writes() int {
	n := 0
	for _, c := range f.Calls() {
		if c.Write {
			n++
		}
	}
	return n
}

// Rejected returns how many calls were over their rate.
func (f *Frame) Rejected() int {
	n := 0
	for _, c := range f.Calls() {
		if c.Rejected {
			n++
		}
	}
	return n
}

// Forget empties the log.
func (f *Frame) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// matches panics on a malformed pattern, which is a mistake in the test.
func matches(operation string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, operation)
		if err != nil {
			panic(fmt.Sprintf("cloud: operation pattern %q: %v", p, err))
		}
		return ok
	})
}
