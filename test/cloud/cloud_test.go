package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// A counter is the smallest emulator: the path is the operation, "Add" counts,
// and the answer is the code or the count.
type counter struct {
	*cloud.Frame
	mu sync.Mutex
	n  int
}

func newCounter() *counter {
	c := &counter{Frame: cloud.New()}
	c.Encode = func(w http.ResponseWriter, _ *http.Request, a cloud.Answer) {
		if a.Code != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, a.Code, a.Body)
	}
	c.Throttled = func(_ string, wait time.Duration) cloud.Answer {
		return cloud.Answer{Code: "Slow", Body: wait}
	}
	return c
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	c.Handle(w, r, cloud.Call{Operation: name, Write: name == "Add"}, func() cloud.Answer {
		c.mu.Lock()
		defer c.mu.Unlock()
		if name == "Add" {
			c.n++
		}
		return cloud.Answer{Body: c.n}
	})
}

// call returns the answer's text, or "lost" when there is none.
func (c *counter) call(t *testing.T, operation string) string {
	t.Helper()
	client := http.Client{Transport: cloud.Direct(c)}
	return get(t, &client, "http://counter.test/"+operation)
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := client.Do(q)
	if err != nil {
		return "lost"
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// same checks a series of answers.
func same(t *testing.T, c *counter, operation string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, c.call(t, operation))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("answers to %s (-want +got):\n%s", operation, d)
	}
}

func TestFaults(t *testing.T) {
	refuse := &cloud.Answer{Code: "No", Body: ""}
	t.Run("the n-th calls of one operation", func(t *testing.T) {
		c := newCounter()
		c.Inject(cloud.Fault{Operation: "Add", After: 1, Times: 2, Answer: refuse})
		same(t, c, "Add", "1", "No", "No", "2")
		same(t, c, "Get", "2")
	})
	t.Run("writes only", func(t *testing.T) {
		c := newCounter()
		c.Inject(cloud.Fault{Writes: true, Answer: refuse})
		same(t, c, "Get", "0")
		same(t, c, "Add", "No")
	})
	t.Run("an answer that gets lost", func(t *testing.T) {
		c := newCounter()
		c.Inject(cloud.Fault{Operation: "A*", Times: 1, Lost: true})
		same(t, c, "Add", "lost", "2")
		server := httptest.NewServer(c) // and over a real connection
		defer server.Close()
		c.Inject(cloud.Fault{Lost: true})
		if got := get(t, server.Client(), server.URL+"/Add"); got != "lost" {
			t.Errorf("got %q", got)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n != 3 {
			t.Errorf("%d calls were carried out, want 3", c.n)
		}
	})
	t.Run("a proxy's page", func(t *testing.T) {
		c := newCounter()
		disarm := c.Inject(cloud.Fault{Page: http.StatusBadGateway})
		if got := c.call(t, "Add"); !strings.Contains(got, "502 Bad Gateway") {
			t.Errorf("got %q", got)
		}
		disarm()
		same(t, c, "Add", "1")
	})
	t.Run("a share of the calls", func(t *testing.T) {
		c := newCounter()
		c.Inject(cloud.Fault{Rate: 0.25, Answer: refuse})
		failed := 0
		for range 400 {
			if c.call(t, "Get") == "No" {
				failed++
			}
		}
		if failed < 60 || failed > 140 {
			t.Errorf("%d of 400 calls failed, want about 100", failed)
		}
	})
	t.Run("a delay that the client does not wait out", func(t *testing.T) {
		c := newCounter()
		c.Inject(cloud.Fault{Delay: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		q, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://counter.test/Add", nil)
		go cancel()
		if a, err := cloud.Direct(c).RoundTrip(q); !errors.Is(err, context.Canceled) {
			a.Body.Close()
			t.Errorf("%v, want the context's error", err)
		}
	})
}

func TestLog(t *testing.T) {
	c := newCounter()
	c.Limit(&cloud.Bucket{PerSecond: 0.001, Burst: 2}, "Add")
	c.Inject(cloud.Fault{Operation: "Lose", Lost: true})
	var watched []string
	c.Watch(func(call cloud.Call) { watched = append(watched, call.Operation) })
	for _, operation := range []string{"Get", "Add", "Lose", "Add", "Add"} {
		c.call(t, operation)
	}
	var got []string
	for _, call := range c.Calls() {
		got = append(got, fmt.Sprint(call.Operation, call.Code, call.Rejected))
	}
	if d := cmp.Diff([]string{"Getfalse", "Addfalse", "Loselostfalse", "Addfalse", "AddSlowtrue"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if n, w, r := len(c.Calls("A*", "Lose")), c.Writes(), c.Rejected(); n != 4 || w != 3 || r != 1 || len(watched) != 5 {
		t.Errorf("%d matching calls, %d writes, %d rejected, %d watched", n, w, r, len(watched))
	}
	c.Forget()
	if n := len(c.Calls()); n != 0 {
		t.Errorf("%d calls after Forget", n)
	}
}

func TestLimiters(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	tests := []struct {
		name    string
		limiter cloud.Limiter
		at      []time.Duration
		want    []time.Duration
	}{
		{
			"bucket", &cloud.Bucket{PerSecond: 2, Burst: 2},
			[]time.Duration{0, 0, 0, 400 * time.Millisecond, 500 * time.Millisecond, time.Hour, time.Hour, time.Hour},
			[]time.Duration{0, 0, 500 * time.Millisecond, 100 * time.Millisecond, 0, 0, 0, 500 * time.Millisecond},
		},
		{
			"window", &cloud.Window{Calls: 2, Every: time.Minute},
			[]time.Duration{0, 0, time.Second, 30 * time.Second, 30 * time.Second, 31 * time.Second},
			[]time.Duration{0, 0, 29 * time.Second, 0, 0, 59 * time.Second},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []time.Duration
			for _, d := range tt.at {
				got = append(got, tt.limiter.Take(start.Add(d)).Round(time.Millisecond))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("waits (-want +got):\n%s", d)
			}
		})
	}
}

func TestStepClock(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := cloud.NewStepClock(start)
	var order []string
	note := func(name string) func() {
		return func() { order = append(order, fmt.Sprint(name, c.Now().Sub(start))) }
	}
	c.AfterFunc(3*time.Second, note("late "))
	c.AfterFunc(time.Second, func() {
		note("early ")()
		c.AfterFunc(time.Second, note("nested "))
	})
	c.AfterFunc(0, note("now "))
	c.Step(2 * time.Second)
	c.Step(2 * time.Second)
	if d := cmp.Diff([]string{"now 0s", "early 1s", "nested 2s", "late 3s"}, order); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := c.Now().Sub(start); got != 4*time.Second {
		t.Errorf("the clock shows %s", got)
	}
}

func TestTimeline(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var l cloud.Timeline[string]
	if got := l.At(start); got != "" {
		t.Errorf("before the first version: %q", got)
	}
	for i, name := range []string{"a", "b", "c"} {
		l.Put(at(10*i), name, 15*time.Second)
	}
	for seconds, want := range map[int]string{-5: "a", 9: "a", 10: "b", 19: "b", 20: "c", 100: "c"} {
		if got := l.At(at(seconds)); got != want {
			t.Errorf("at %d s: %q, want %q", seconds, got, want)
		}
	}
	l.Put(at(100), "d", 15*time.Second)
	if got := l.At(at(9)); got != "c" {
		t.Errorf("what is forgotten answers %q, want the oldest that is kept, c", got)
	}
}

func TestEffects(t *testing.T) {
	route := func(i byte) cloud.Route {
		return cloud.Route{Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, i, 0}), 24), Via: netip.AddrFrom4([4]byte{10, 0, 0, i})}
	}
	clock := cloud.NewStepClock(time.Now())
	f := cloud.New()
	f.Clock, f.EffectDelay = clock, 20*time.Second
	var shown [][]cloud.Route
	f.Program = func(routes []cloud.Route) { shown = append(shown, routes) }
	f.Effect([]cloud.Route{route(1)})
	clock.Step(10 * time.Second)
	f.Effect([]cloud.Route{route(1), route(2)})
	if len(shown) != 0 {
		t.Fatalf("in effect too early: %v", shown)
	}
	clock.Step(10 * time.Second)
	f.EffectDelay = 0
	f.Effect(nil) // overtakes the second one
	clock.Step(time.Minute)
	if len(shown) != 2 || len(shown[0]) != 1 || shown[1] != nil {
		t.Errorf("shown: %v, want the first and the last", shown)
	}
}

func TestProgrammer(t *testing.T) {
	a, b := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("10.244.2.0/24")
	x, y := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var calls []string
	broken := errors.New("broken")
	program := cloud.Programmer(
		func(d netip.Prefix, via netip.Addr) error {
			calls = append(calls, fmt.Sprintf("put %s %s", d, via))
			return nil
		},
		func(d netip.Prefix) error {
			calls = append(calls, fmt.Sprintf("remove %s", d))
			return broken
		},
		func(err error) { calls = append(calls, err.Error()) },
	)
	step := func(want []string, routes ...cloud.Route) {
		t.Helper()
		calls = nil
		program(routes)
		slices.Sort(calls)
		if d := cmp.Diff(want, calls); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	to := func(d netip.Prefix, via netip.Addr) cloud.Route { return cloud.Route{Destination: d, Via: via} }
	step([]string{"put 10.244.1.0/24 10.0.0.1", "put 10.244.2.0/24 10.0.0.2"}, to(a, x), to(b, y), to(b, x))
	step(nil, to(b, y), to(a, x))
	step([]string{"put 10.244.1.0/24 10.0.0.2"}, to(a, y), to(b, y))
	step([]string{"broken", "remove 10.244.2.0/24"}, to(a, y), to(b, netip.Addr{}))
	step([]string{"broken", "remove 10.244.1.0/24"})
}
