package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/podcidr"
)

// An office is an allocator, its API server, and what it told.
type office struct {
	*Allocator
	server *apiServer
	mu     sync.Mutex
	told   []string // kind and node
	failed []error
}

func always() error { return nil }

var twoFamilies = []podcidr.Range{
	{CIDR: netip.MustParsePrefix("10.244.0.0/22"), Bits: 24},
	{CIDR: netip.MustParsePrefix("fd00:10:244::/62"), Bits: 64},
}

func newOffice(t testing.TB, server *apiServer, identity string) *office {
	t.Helper()
	o := &office{server: server}
	var err error
	o.Allocator, err = server.client(t).NewAllocator(twoFamilies, identity, always,
		func(e routes.Event) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.told = append(o.told, fmt.Sprintf("%s %s: %s", e.Kind, e.Node, e.Message))
		},
		func(err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.failed = append(o.failed, err)
		})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// watch tells the allocator of all Nodes as they are.
func (o *office) watch() {
	alive := map[string]bool{}
	for _, n := range o.server.nodes() {
		alive[string(n.UID)] = true
		o.take(n)
	}
	o.Allocator.mu.Lock()
	defer o.Allocator.mu.Unlock()
	for uid := range o.Allocator.nodes {
		if !alive[string(uid)] {
			o.drop(uid)
		}
	}
}

// run runs the allocator until the test's end, with a watch that looks each
// second.
func (o *office) run(t *testing.T) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(func() { end(); synctest.Wait() })
	synced := make(chan struct{})
	go func() {
		for first := true; ctx.Err() == nil; first = false {
			if o.watch(); first {
				close(synced)
			}
			pause(ctx, time.Second)
		}
	}()
	go o.Run(ctx, func(context.Context) error { <-synced; return nil })
}

func (o *office) allocated() map[string]string {
	got := map[string]string{}
	for _, n := range o.server.nodes() {
		got[n.Name] = strings.Join(n.Spec.PodCIDRs, " ")
	}
	return got
}

func TestAllocates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.addNode("a", "10.244.1.0/24", "fd00:10:244:1::/64") // R079: what a Node has is respected
		server.addNode("b")
		server.addNode("single", "10.244.3.128/25") // another size, one family
		o := newOffice(t, server, "first")
		o.run(t)
		time.Sleep(lookOut - time.Second)
		if got := o.allocated()["b"]; got != "" {
			t.Errorf("b got %s at once: another allocator had no chance to show itself", got)
		}
		time.Sleep(3 * time.Second)
		want := map[string]string{"a": "10.244.1.0/24 fd00:10:244:1::/64", "b": "10.244.0.0/24 fd00:10:244:2::/64", "single": "10.244.3.128/25"}
		if diff := cmp.Diff(want, o.allocated()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		server.addNode("c")
		server.addNode("later") // for which nothing is left
		time.Sleep(2 * time.Second)
		want["c"], want["later"] = "10.244.2.0/24 fd00:10:244:3::/64", ""
		if diff := cmp.Diff(want, o.allocated()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		time.Sleep(time.Minute)
		if len(o.told) != 1 || !strings.Contains(o.told[0], "PodCIDRsExhausted later: node later gets no podCIDR, since every podCIDR is held: /24s of 10.244.0.0/22: delete Nodes that are gone") {
			t.Errorf("told %q", o.told)
		}
		if s := o.Stats(); s.Waiting != 1 || s.Stopped {
			t.Errorf("figures are %+v", s)
		}
		server.drop(nodesPath + "/a")
		time.Sleep(2 * time.Second)
		if got := o.allocated()["later"]; got != "10.244.1.0/24 fd00:10:244::/64" && got != "10.244.1.0/24 fd00:10:244:1::/64" {
			t.Errorf("later got %q, want the range that was given up", got)
		}
		if len(o.failed) > 0 {
			t.Errorf("failed: %v", o.failed)
		}
	})
}

// assign gives podCIDRs to a Node, as another allocator does.
func (s *apiServer) assign(name string, podCIDRs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := clone(s.objects[nodesPath+"/"+name])
	o["spec"] = object{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs}
	if _, err := s.update(nodesPath+"/"+name, s.objects[nodesPath+"/"+name], clone(o)); err != nil {
		panic(err)
	}
}

func TestStopsBesideAnotherAllocator(t *testing.T) {
	for _, c := range []struct {
		situation     string
		before, later func(s *apiServer)
		stops         bool
		names         []string
	}{
		{
			"another one gives the first Node its podCIDR", nil,
			func(s *apiServer) { s.assign("waiting", "10.244.1.0/24") }, true,
			[]string{`node waiting has got podCIDR 10.244.1.0/24 from elsewhere`, "take --allocate-node-cidrs away from kube-controller-manager"},
		},
		{
			"a Node comes with a podCIDR", nil,
			func(s *apiServer) { s.addNode("made", "10.244.2.0/24") }, true,
			[]string{`node made has got podCIDR 10.244.2.0/24 from elsewhere`},
		},
		{
			"a podCIDR outside the cluster CIDRs",
			func(s *apiServer) { s.addNode("far", "192.0.2.0/24") }, nil, true,
			[]string{"node far has podCIDR 192.0.2.0/24, which lies outside the cluster CIDRs"},
		},
		{
			"another one was there before",
			func(s *apiServer) { s.addNode("old"); s.assign("old", "10.244.1.0/24") }, nil, false, nil,
		},
	} {
		t.Run(c.situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				if c.before != nil {
					c.before(server)
				}
				server.addNode("waiting")
				server.addNode("waiting-too")
				o := newOffice(t, server, "first")
				o.run(t)
				time.Sleep(2 * time.Second)
				if c.later != nil {
					c.later(server)
				}
				time.Sleep(time.Minute)
				if got := o.allocated()["waiting-too"]; (got == "") != c.stops {
					t.Errorf("waiting-too got %q", got)
				}
				if s := o.Stats(); s.Stopped != c.stops {
					t.Errorf("figures are %+v", s)
				}
				if !c.stops {
					return
				}
				for _, name := range append(c.names, "AllocationStopped waiting-too: ", "AllocationStopped : ") {
					if n := slices.IndexFunc(o.told, func(told string) bool { return strings.Contains(told, name) }); n < 0 {
						t.Errorf("told %q, which lacks %q", o.told, name)
					}
				}
				if n := len(o.told); n > 3 {
					t.Errorf("told %d times: %q", n, o.told)
				}
				// Once the Node outside is gone there is no sign of another one.
				if server.drop(nodesPath + "/far"); c.before != nil {
					time.Sleep(2 * time.Second)
					if o.allocated()["waiting-too"] == "" {
						t.Error("nothing is allocated, though the Node outside is gone")
					}
				}
			})
		})
	}
}

// An excluded Node is left alone, and gets a podCIDR once it is not.
func TestExcludedGetsNoPodCIDR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.addNode("a")
		label := func(value string) {
			server.mu.Lock()
			defer server.mu.Unlock()
			o := clone(server.objects[nodesPath+"/a"])
			metadata(o)["labels"] = object{routes.ExcludeLabel: value}
			if _, err := server.update(nodesPath+"/a", server.objects[nodesPath+"/a"], o); err != nil {
				t.Error(err)
			}
		}
		label("true")
		o := newOffice(t, server, "first")
		o.run(t)
		time.Sleep(time.Minute)
		if got := o.allocated()["a"]; got != "" {
			t.Errorf("excluded it got %s", got)
		}
		label("false")
		time.Sleep(time.Minute)
		if got := o.allocated()["a"]; got == "" {
			t.Error("included it got nothing")
		}
	})
}

// R080: an assignment that an earlier leader still has under way when the next
// one begins fails, however late it arrives.
func TestLateAssignmentFails(t *testing.T) {
	server := newAPIServer()
	server.addNode("a")
	server.addNode("b")
	first := newOffice(t, server, "first")
	first.begun, first.first = true, time.Now().Add(-time.Hour)
	first.watch()
	late := server.withhold()
	if _, err := first.pass(t.Context()); err == nil {
		t.Fatal("no assignment was under way")
	}
	server.fault = nil
	second := newOffice(t, server, "second")
	if err := second.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := late(t); n != 2 {
		t.Fatalf("%d assignments were under way, want 2", n)
	}
	if got := second.allocated(); got["a"]+got["b"] != "" {
		t.Errorf("they were carried out: %v", got)
	}
}

// withhold keeps every assignment back; the returned function delivers them and
// returns how many there were.
func (s *apiServer) withhold() (deliver func(t *testing.T) int) {
	var mu sync.Mutex
	var kept []func()
	s.fault = func(r *http.Request, body []byte) (bool, error) {
		if r.Method != http.MethodPatch {
			return true, nil
		}
		mu.Lock()
		defer mu.Unlock()
		late := r.Clone(context.Background())
		kept = append(kept, func() { _, _ = s.do(late, body) })
		return false, errors.New("no answer in time")
	}
	return func(t *testing.T) int {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		for _, f := range kept {
			f()
		}
		return len(kept)
	}
}

// TestNoRangeTwice lets Nodes come and go while requests and answers are lost,
// requests arrive late, the watch lags and leaders change, each in the middle of
// its work: no two Nodes ever have overlapping podCIDRs.
func TestNoRangeTwice(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			server := newAPIServer()
			w := &weather{server: server, luck: rand.New(rand.NewPCG(seed, 4))}
			server.fault = w.fault
			lead := func(n int) *office {
				o := newOffice(t, server, fmt.Sprint("leader-", n))
				o.Allocator.first = time.Now().Add(-time.Hour)
				return o
			}
			o, began := lead(0), false
			for step := range 800 {
				name := fmt.Sprintf("n%d", r.IntN(9))
				switch r.IntN(8) {
				case 0, 1:
					if !slices.ContainsFunc(server.nodes(), func(n *corev1.Node) bool { return n.Name == name }) {
						server.addNode(name)
					}
				case 2:
					server.drop(nodesPath + "/" + name)
				case 3:
					o.watch()
				case 4:
					w.deliver(r)
				case 5:
					if r.IntN(2) == 0 {
						o, began = lead(step), false
					}
				default:
					// As Run does: no pass before a good beginning.
					if began = began || o.begin(t.Context()) == nil; began {
						_, _ = o.pass(t.Context())
					}
				}
				checkDistinct(t, server)
			}
			server.fault = nil
			w.deliverAll()
			o = lead(-1)
			if err := o.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := o.pass(t.Context()); err != nil {
				t.Error(err)
			}
			if checkDistinct(t, server); len(o.allocated()) > 4 {
				return
			}
			for node, got := range o.allocated() {
				if got == "" {
					t.Errorf("%s has none, though there are enough: %v", node, o.allocated())
				}
			}
		})
	}
}

func checkDistinct(t *testing.T, server *apiServer) {
	t.Helper()
	var held []netip.Prefix
	for _, n := range server.nodes() {
		for _, text := range n.Spec.PodCIDRs {
			p := netip.MustParsePrefix(text)
			if slices.ContainsFunc(held, p.Overlaps) {
				t.Fatalf("%s was given twice: to %s as well", p, n.Name)
			}
			held = append(held, p)
		}
	}
}

// A weather loses requests and answers, and keeps requests for later.
type weather struct {
	server *apiServer
	mu     sync.Mutex
	luck   *rand.Rand
	kept   []func()
}

func (w *weather) fault(r *http.Request, body []byte) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.luck.IntN(6) {
	case 0:
		return false, errors.New("connection refused")
	case 1:
		return true, errors.New("connection reset before the answer")
	case 2:
		if r.Method == http.MethodPatch {
			late := r.Clone(context.Background())
			w.kept = append(w.kept, func() { _, _ = w.server.do(late, body) })
			return false, errors.New("no answer in time")
		}
	}
	return true, nil
}

// deliver lets one of the requests arrive that were kept.
func (w *weather) deliver(r *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept) > 0 {
		i := r.IntN(len(w.kept))
		w.kept[i]()
		w.kept = slices.Delete(w.kept, i, i+1)
	}
}

func (w *weather) deliverAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.kept {
		f()
	}
	w.kept = nil
}
