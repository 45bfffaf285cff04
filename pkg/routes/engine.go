package routes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// Config is what an Engine works with. Table, Ledger, Observer, Owner and
// Ranges are needed; the other zero values stand for their defaults.
type Config struct {
	Table    vpc.RouteTable
	Ledger   Ledger
	Observer Observer

	// Meter, when set, is told figures that are no state.
	Meter Meter

	// Owner is this installation's mark.
	Owner string
	// Ranges are the cluster CIDRs.
	Ranges []netip.Prefix
	// Adopt records routes without any mark that already are as wanted, so that
	// they count as ours from then on.
	Adopt bool
	// MaxDeletes is how many routes may be deleted within one Resync; 0 stands
	// for 20 % of ours, and at least those of three nodes. Negative: no limit.
	MaxDeletes int

	// Prover sends packets over routes. Without it a route counts once the cloud
	// has said yes and Settle has passed.
	Prover Prover
	Settle time.Duration
	// ConditionFollowsProof makes a node unavailable when a route that was
	// proved does not answer any more.
	ConditionFollowsProof bool

	// Resync is the time between two full lists when nothing fails; default 5
	// minutes.
	Resync time.Duration
	// Consistency is how long a list may lag behind a write; default 30 s.
	Consistency time.Duration
	// Rate is the largest number of calls to the cloud per second; default 10.
	Rate float64
	// Parallel is the largest number of calls under way at once; default 100.
	Parallel int
	// Grace is how long calls under way may go on when Run is told to end;
	// default 3 s.
	Grace time.Duration
}

func (c Config) withDefaults() Config {
	setDefault(&c.Resync, 5*time.Minute)
	setDefault(&c.Consistency, 30*time.Second)
	setDefault(&c.Rate, 10)
	setDefault(&c.Parallel, 100)
	setDefault(&c.Grace, 3*time.Second)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// An Engine brings a route table to what Nodes ask for and keeps it there.
//
// All its state belongs to the goroutine of Run. Whatever comes from outside,
// news of Nodes and answers of calls alike, comes through the inbox; whatever
// takes time is done by a goroutine that answers there.
type Engine struct {
	cfg   Config
	inbox inbox
	jobs  sync.WaitGroup
	ctx   context.Context // of calls; ends Grace after Run's

	members map[string]*member
	synced  bool // the Node list is complete
	claims  prefixMap[[]*claim]

	book      book
	bookBusy  map[entryKey]bool
	loaded    bool
	uncertain map[Place]time.Time // writes that may have happened, and when

	view    view
	tables  []string
	limits  vpc.Limits
	filling map[string]bool // tables that were told to be so
	listing listing

	writes   map[Place]*write
	queue    []*write
	resort   bool // the queue is out of order
	serial   int
	inFlight int            // calls of Apply
	creating map[string]int // creates under way, by table
	history  map[Place]*rewrites
	// lastChange is when the cloud last accepted a write of this process.
	lastChange map[Place]time.Time
	limiter    *limiter
	denied     gate
	full       map[string]*gate // by table
	deletions  brake

	toResolve []*hopTask
	resolving int
	unknowing gate // after Denied
	proving   int
	toProve   []*claim

	dirty     map[netip.Prefix]bool
	allDirty  bool
	touched   map[netip.Prefix]bool
	reports   reports
	wakeAt    time.Time
	stats     Stats
	shown     Stats // a copy of stats for others
	statsLock sync.Mutex
}

// New returns an engine that waits for Run, and for its first SetNodes.
func New(cfg Config) (*Engine, error) {
	var errs []error
	if cfg.Table == nil || cfg.Ledger == nil || cfg.Observer == nil {
		errs = append(errs, errors.New("table, ledger and observer are needed"))
	}
	if cfg.Owner == "" {
		errs = append(errs, errors.New(`the owner's mark is empty: name the cluster, for example "prod-1"`))
	}
	errs = append(errs, CheckRanges(cfg.Ranges)...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Engine{
		cfg:        cfg,
		inbox:      inbox{wake: make(chan struct{}, 1)},
		members:    map[string]*member{},
		bookBusy:   map[entryKey]bool{},
		filling:    map[string]bool{},
		uncertain:  map[Place]time.Time{},
		writes:     map[Place]*write{},
		history:    map[Place]*rewrites{},
		lastChange: map[Place]time.Time{},
		stats:      Stats{Routes: map[State]int{}},
		limiter:    newLimiter(cfg.Rate),
		full:       map[string]*gate{},
		creating:   map[string]int{},
		deletions:  brake{window: cfg.Resync},
		dirty:      map[netip.Prefix]bool{},
		touched:    map[netip.Prefix]bool{},
		reports:    newReports(),
	}, nil
}

// CheckRanges returns what is wrong with cluster CIDRs, everything together.
func CheckRanges(ranges []netip.Prefix) []error {
	var errs []error
	if len(ranges) == 0 {
		errs = append(errs, errors.New("no cluster CIDR is given: name at least one, for example 10.244.0.0/16"))
	}
	for i, r := range ranges {
		switch {
		case !r.IsValid() || r.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("cluster CIDR %s is not a range, for example 10.244.0.0/16", r))
			continue
		case r != r.Masked():
			errs = append(errs, fmt.Errorf("cluster CIDR %s has host bits set: the range is %s", r, r.Masked()))
		}
		for _, o := range ranges[:i] {
			if o.Overlaps(r) {
				errs = append(errs, fmt.Errorf("cluster CIDRs %s and %s overlap: keep the wider one", o, r))
			}
		}
	}
	return errs
}

// SetNodes replaces the whole Node list. Until it is called the first time
// nothing is written: an incomplete list would look like Nodes that went.
func (e *Engine) SetNodes(nodes []Node) {
	nodes = slices.Clone(nodes)
	e.inbox.post(func() {
		e.synced, e.allDirty = true, true
		present := map[string]bool{}
		for _, n := range nodes {
			present[n.Name] = true
			e.setNode(n)
		}
		for name := range e.members {
			if !present[name] {
				e.dropNode(name)
			}
		}
	})
}

// NodesComplete says that every Node there is has been told by SetNode, which is
// as good as SetNodes.
func (e *Engine) NodesComplete() { e.inbox.post(func() { e.synced, e.allDirty = true, true }) }

// SetNode adds one Node or replaces what is known of it.
func (e *Engine) SetNode(n Node) { e.inbox.post(func() { e.setNode(n) }) }

// DropNode forgets a Node that is gone.
func (e *Engine) DropNode(name string) { e.inbox.post(func() { e.dropNode(name) }) }

// Relist asks for a full comparison soon.
func (e *Engine) Relist() { e.inbox.post(func() { e.needList(time.Now()) }) }

// Run works until ctx ends, then lets calls under way finish within Grace. It
// deletes nothing when it ends. It may be called once.
func (e *Engine) Run(ctx context.Context) error {
	stop := e.limitCalls(ctx)
	defer stop()
	defer e.jobs.Wait()
	if err := e.load(ctx); err != nil {
		return err
	}
	e.listing.due = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.inbox.wake:
		case <-timer.C:
		}
		for _, f := range e.inbox.take() {
			f()
		}
		now := time.Now()
		e.step(now)
		timer.Reset(e.wakeAt.Sub(now))
	}
}

// limitCalls gives calls a context that outlives ctx by Grace.
func (e *Engine) limitCalls(ctx context.Context) (stop func()) {
	var cancel context.CancelFunc
	e.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(e.cfg.Grace, cancel) })
	return cancel
}

// load reads the ledger, patiently.
func (e *Engine) load(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		entries, err := e.cfg.Ledger.Load(ctx)
		if err == nil {
			e.loadEntries(entries, time.Now())
			return nil
		}
		e.observe(Event{Kind: LedgerUnreadable, Message: fmt.Sprintf("nothing is done until the ledger can be read: %v", err)})
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff(attempt)):
		}
	}
}

func (e *Engine) loadEntries(entries []Entry, now time.Time) {
	for _, entry := range entries {
		e.book.put(entry)
		// An earlier process may have asked just before it ended.
		e.uncertain[Place{entry.Table, entry.Destination}] = now
	}
	e.loaded, e.allDirty = true, true
}

// step does what can be done now, and leaves in wakeAt when to look again.
func (e *Engine) step(now time.Time) {
	e.wakeAt = now.Add(beat)
	e.startList(now)
	e.startResolving(now)
	if e.ready() {
		e.replan()
		e.dispatch(now)
		e.keepBook()
		e.startProving(now)
	}
	e.publish()
	e.count(now)
}

// ready is true once nothing that a plan needs is missing.
func (e *Engine) ready() bool { return e.synced && e.loaded && e.listing.done }

// wake asks for a step at a time.
func (e *Engine) wake(at time.Time) {
	if at.Before(e.wakeAt) {
		e.wakeAt = at
	}
}

// later has a destination looked at again after a while.
func (e *Engine) later(d time.Duration, dest netip.Prefix) {
	time.AfterFunc(d, func() { e.inbox.post(func() { e.dirty[dest] = true }) })
}

// do runs work on a goroutine of its own and its second half, with the
// engine's state, when it is done.
func (e *Engine) do(work func() (finish func())) {
	e.jobs.Go(func() {
		finish := work()
		e.inbox.post(finish)
	})
}

// setNode takes over a new or changed Node.
func (e *Engine) setNode(n Node) {
	m := e.members[n.Name]
	if m != nil && m.Equal(n) {
		return
	}
	if m == nil {
		m = &member{hops: map[vpc.Family]*hop{}}
		e.members[n.Name] = m
	}
	moved := !m.sameMachine(n)
	reborn := m.UID != n.UID
	m.Node = n
	prefixes, problem := n.claims(e.cfg.Ranges)
	if problem != nil || m.problem != nil {
		e.lookAtRecords(n.Name)
	}
	m.problem = problem
	e.setClaims(m, prefixes, reborn)
	for _, h := range m.hops {
		if moved {
			h.due, h.asked, h.attempts, h.retry = true, false, 0, time.Time{}
		}
	}
	e.queueResolving(m)
	e.reports.touch(n.Name)
}

// setClaims brings a node's claims to the given prefixes.
func (e *Engine) setClaims(m *member, prefixes []netip.Prefix, reborn bool) {
	var kept []*claim
	for _, c := range m.claims {
		e.dirty[c.dest] = true
		if slices.Contains(prefixes, c.dest) {
			kept = append(kept, c)
			if reborn {
				c.proof, c.known, c.timed = proof{}, time.Now(), false
			}
			continue
		}
		e.removeClaim(c)
	}
	for _, p := range prefixes {
		if slices.ContainsFunc(kept, func(c *claim) bool { return c.dest == p }) {
			continue
		}
		c := &claim{node: m, dest: p, known: time.Now()}
		kept = append(kept, c)
		e.claims.set(p, append(e.claims.get(p), c))
		e.dirty[p] = true
		e.touch(p)
		if m.hops[vpc.FamilyOf(p)] == nil {
			m.hops[vpc.FamilyOf(p)] = &hop{due: true}
		}
	}
	m.claims = kept
}

func (e *Engine) removeClaim(c *claim) {
	rest := slices.DeleteFunc(slices.Clone(e.claims.get(c.dest)), func(o *claim) bool { return o == c })
	if len(rest) == 0 {
		e.claims.delete(c.dest)
	} else {
		e.claims.set(c.dest, rest)
	}
	c.proof.generation++ // answers still to come are about nothing now
	e.dirty[c.dest] = true
}

func (e *Engine) dropNode(name string) {
	m := e.members[name]
	if m == nil {
		return
	}
	for _, c := range m.claims {
		e.removeClaim(c)
	}
	if m.problem != nil {
		e.lookAtRecords(name)
	}
	delete(e.members, name)
	e.reports.touch(name)
}

// lookAtRecords has the routes looked at that the ledger knows for a node,
// whether or not the node claims them.
func (e *Engine) lookAtRecords(node string) {
	for dest, entries := range e.book.entries.all() {
		if slices.ContainsFunc(entries, func(entry Entry) bool { return entry.Node == node }) {
			e.dirty[dest] = true
		}
	}
}

// An inbox collects what the engine has still to hear. It never blocks the
// sender.
type inbox struct {
	lock sync.Mutex
	news []func()
	wake chan struct{}
}

func (b *inbox) post(f func()) {
	b.lock.Lock()
	b.news = append(b.news, f)
	b.lock.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []func() {
	b.lock.Lock()
	defer b.lock.Unlock()
	news := b.news
	b.news = nil
	return news
}
