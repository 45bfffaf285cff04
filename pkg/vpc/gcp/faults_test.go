package gcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

// A fault hits each kind of write once; whatever it was, the call is not
// repeated, nobody else's fault is called success, and the next passes bring the
// network to the wanted state.
func TestEveryFaultOnEveryWrite(t *testing.T) {
	code := func(c string) cloud.Fault { return cloud.Fault{Answer: &cloud.Answer{Code: c, Message: "planted"}} }
	failed := func(c string) cloud.Fault { return cloud.Fault{Answer: emulated.FailedOperation(c, "planted")} }
	faults := map[string]struct {
		fault cloud.Fault
		class vpc.Class
	}{
		"answer lost":                    {cloud.Fault{Lost: true}, vpc.Transient},
		"proxy page":                     {cloud.Fault{Page: http.StatusBadGateway}, vpc.Transient},
		"proxy throttles":                {cloud.Fault{Page: http.StatusTooManyRequests}, vpc.Throttled},
		"proxy denies":                   {cloud.Fault{Page: http.StatusForbidden}, vpc.Denied},
		"rate":                           {code("rateLimitExceeded"), vpc.Throttled},
		"no permission, the same status": {code("forbidden"), vpc.Denied},
		"quota, the same status":         {code("quotaExceeded"), vpc.Quota},
		"no credentials":                 {code("authError"), vpc.Denied},
		"behind the API":                 {code("backendError"), vpc.Transient},
		"unknown reason":                 {cloud.Fault{Answer: &cloud.Answer{Status: 418, Code: "somethingNew"}}, vpc.Transient},
		"another change under way":       {code("resourceNotReady"), vpc.InProgress},
		"operation failed":               {failed("INTERNAL_ERROR"), vpc.Transient},
		"operation over quota":           {failed("QUOTA_EXCEEDED"), vpc.Quota},
		"operation over its rate":        {failed("RATE_LIMIT_EXCEEDED"), vpc.Throttled},
		"operation not permitted":        {failed("PERMISSIONS_ERROR"), vpc.Denied},
		"operation, unknown code":        {failed("SOMETHING_NEW"), vpc.Denied}, // its status is 403
	}
	for name, f := range faults {
		for op, call := range map[vpc.Op]string{vpc.Create: "routes.insert", vpc.Replace: "routes.insert", vpc.Delete: "routes.delete"} {
			t.Run(fmt.Sprintf("%s/%s", op, name), func(t *testing.T) {
				w := newWorld(t)
				w.startMachines(1, 2)
				table := w.table(t)
				change, nodes := create(1), map[netip.Prefix]vpc.Node{podCIDR(1): node(1)}
				if op != vpc.Create {
					apply(t, table, change)
				}
				switch op {
				case vpc.Replace:
					change, nodes[podCIDR(1)] = replacement(t, table, 1, 2), node(2)
				case vpc.Delete:
					change.Op, nodes = vpc.Delete, nil
					change.Route = listed(t, table, podCIDR(1))
				}
				f.fault.Times, f.fault.Operation = 1, call
				w.Inject(f.fault)
				w.Forget()
				err := table.Apply(t.Context(), []vpc.Change{change})[0]
				// A full quota is made room in by deleting what is replaced.
				if op == vpc.Replace && f.class == vpc.Quota {
					if err != nil {
						t.Errorf("replace in a full quota: %v", err)
					}
				} else if err == nil || vpc.ClassOf(err) != f.class {
					t.Errorf("%v (%v), want %v", err, vpc.ClassOf(err), f.class)
				} else if n := len(w.Calls(call)); n != 1 {
					t.Errorf("%d calls of %s, want 1: nothing is repeated", n, call)
				}
				if err != nil && len(err.Error()) > 400 {
					t.Errorf("the error has %d characters: %v", len(err.Error()), err)
				}
				for range 3 {
					if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
						t.Fatal(err)
					}
				}
				want := map[vpc.Op][]string{vpc.Create: {line(1, 1)}, vpc.Replace: {line(1, 2)}}[op]
				if d := cmp.Diff(want, w.routes()); d != "" {
					t.Errorf("after the next passes (-want +got):\n%s", d)
				}
			})
		}
	}
}

// R072, and the trap of kubernetes issue 38618: the insert was accepted, waiting
// for it is over the rate. That is throttling and no success; the next pass finds
// the route, and a create that comes too early reads back what has the name.
func TestWaitOverItsRate(t *testing.T) {
	w := newWorld(t, func(o *emulated.Options) { o.OperationTime = 20 * time.Millisecond })
	w.startMachines(1)
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "globalOperations.wait", Times: 1, Answer: &cloud.Answer{Code: "rateLimitExceeded"}})
	err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
	if vpc.ClassOf(err) != vpc.Throttled || err == nil {
		t.Fatalf("%v (%v), want Throttled", err, vpc.ClassOf(err))
	}
	if err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]; err != nil && vpc.ClassOf(err) != vpc.InProgress {
		t.Errorf("while the operation is under way: %v (%v)", err, vpc.ClassOf(err))
	}
	for !w.Idle() {
		time.Sleep(time.Millisecond)
	}
	apply(t, table, create(1))
	if d := cmp.Diff([]string{line(1, 1)}, w.routes()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A rate is told with the time until the quota is filled in: the next full
// minute, or what the API says. The limit on operations under way has none.
func TestWaitHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			answer cloud.Answer
			want   time.Duration
		}{
			"the minute":           {cloud.Answer{Code: "rateLimitExceeded"}, 45 * time.Second},
			"Retry-After":          {cloud.Answer{Code: "rateLimitExceeded", Header: http.Header{"Retry-After": {"7"}}}, 7 * time.Second},
			"operations under way": {cloud.Answer{Code: "rateLimitExceeded", Body: []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"}}}, 0},
		} {
			w := newWorld(t)
			w.startMachines(1)
			table := w.table(t)
			w.Inject(cloud.Fault{Operation: "routes.insert", Answer: &tt.answer})
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(75 * time.Second)))
			err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
			if got, _ := vpc.RetryAfter(err); got != tt.want || vpc.ClassOf(err) != vpc.Throttled {
				t.Errorf("%s: wait %s after %v (%v), want %s", name, got, err, vpc.ClassOf(err), tt.want)
			}
		}
	})
}

// Throttled or denied once, the rest of the batch is not tried.
func TestRefusalEndsTheApply(t *testing.T) {
	for code, class := range map[string]vpc.Class{"rateLimitExceeded": vpc.Throttled, "forbidden": vpc.Denied} {
		t.Run(code, func(t *testing.T) {
			w := newWorld(t)
			w.config.WritesPerSecond = 2000
			w.startMachines(numbers(1, 250)...)
			table := w.table(t)
			w.Inject(cloud.Fault{Operation: "routes.insert", Answer: &cloud.Answer{Code: code}})
			var changes []vpc.Change
			for i := 1; i <= 250; i++ {
				changes = append(changes, create(i))
			}
			for i, err := range table.Apply(t.Context(), changes) {
				if err == nil || vpc.ClassOf(err) != class {
					t.Fatalf("change %d: %v (%v)", i, err, vpc.ClassOf(err))
				}
			}
			if n := w.Writes(); n > 100 {
				t.Errorf("%d writes of 250 after a refusal", n)
			}
		})
	}
}

// A proxy's page, an empty body or JSON that is no object never reaches the SDK,
// and its text does not fill the log.
func TestAnswersThatAreNotTheAPIs(t *testing.T) {
	for _, body := range []string{"", "null", "[]", "42", `{"items":`, "<html>" + strings.Repeat("x", 5000) + "</html>"} {
		t.Run(fmt.Sprintf("%.12q", body), func(t *testing.T) {
			w := newWorld(t)
			w.config.Endpoint.Transport = respond{cloud.Direct(w), body}
			_, err := gcp.New(t.Context(), w.config)
			if err == nil || vpc.ClassOf(err) != vpc.Transient || len(err.Error()) > 400 {
				t.Errorf("%v: %v", vpc.ClassOf(err), err)
			}
		})
	}
}

// A respond answers every call but those for tokens with one text.
type respond struct {
	tokens http.RoundTripper
	body   string
}

func (r respond) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Path == "/token" {
		return r.tokens.RoundTrip(q)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.body))}, nil
}

// A list that the API calls incomplete is none: what is missing in it would be
// taken for gone.
func TestIncompleteList(t *testing.T) {
	w := newWorld(t)
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "routes.list", Times: 1, Answer: &cloud.Answer{Body: map[string]any{"warning": map[string]any{"code": "LIST_OVERHEAD_QUOTA_EXCEED", "message": "planted"}}}})
	if routes, err := table.List(t.Context()); err == nil || vpc.ClassOf(err) != vpc.Transient {
		t.Errorf("%v, %v", routes, err)
	}
}

// An endless call ends at its deadline, an operation without end at its own, a
// cancelled one at once; none is taken for the cloud's refusal.
func TestDeadlinesAndCancellation(t *testing.T) {
	t.Run("call", func(t *testing.T) {
		w := newWorld(t)
		w.listen(t)
		w.config.CallTimeout = 100 * time.Millisecond
		w.startMachines(1)
		table := w.table(t)
		w.Inject(cloud.Fault{Operation: "routes.insert", Delay: time.Hour})
		err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
		if !errors.Is(err, context.DeadlineExceeded) || vpc.ClassOf(err) != vpc.Transient || vpc.IsCancelled(err) {
			t.Errorf("no answer: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := table.Apply(ctx, []vpc.Change{create(1)})[0]; !vpc.IsCancelled(err) {
			t.Errorf("cancelled: %v", err)
		}
	})
	for name, option := range map[string]func(*emulated.Options){
		"operation":                  func(o *emulated.Options) { o.OperationTime = time.Hour },
		"operation, waits are short": func(o *emulated.Options) { o.OperationTime, o.WaitReturnsEarly = time.Hour, true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, option)
				w.startMachines(1)
				table := w.table(t)
				start := time.Now()
				err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
				if err == nil || vpc.ClassOf(err) != vpc.Transient {
					t.Errorf("%v (%v)", err, vpc.ClassOf(err))
				}
				if took := time.Since(start); took > gcp.DefaultOperationTimeout+time.Second {
					t.Errorf("took %s", took)
				}
				if n := len(w.Calls("globalOperations.wait")); n > int(gcp.DefaultOperationTimeout/time.Second)+1 {
					t.Errorf("%d calls while waiting", n)
				}
				// What was given up may be there later, and is found then.
				time.Sleep(2 * time.Hour)
				apply(t, table, create(1))
			})
		})
	}
}

// R057: machines die first, their Nodes go later, and ranges and names are used
// again: the network never holds more than the live nodes.
func TestRecycledMachines(t *testing.T) {
	w := newWorld(t)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{}
	for i := 1; i <= 3; i++ {
		w.startMachines(i)
		nodes[podCIDR(i)] = node(i)
	}
	for cycle := range 100 {
		born := 10 + cycle%7 // names come back
		w.startMachines(born)
		nodes[podCIDR(9)] = node(born) // the range is the same each time
		if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
			t.Fatalf("cycle %d, node added: %v", cycle, err)
		}
		w.RemoveMachines(machine(born).Path())
		if dead := listed(t, table, podCIDR(9)); !dead.Blackhole {
			t.Fatalf("cycle %d: %+v is no blackhole", cycle, dead)
		}
		if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
			t.Fatalf("cycle %d, machine gone: %v", cycle, err)
		}
		if cycle%2 == 0 { // else the next node takes the range over at once
			delete(nodes, podCIDR(9))
			if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
				t.Fatalf("cycle %d, node gone: %v", cycle, err)
			}
		}
		if n := len(w.routes()); n != len(nodes) {
			t.Fatalf("cycle %d: %d routes for %d nodes: %v", cycle, n, len(nodes), w.routes())
		}
	}
}

// R078: whatever nodes are called, each gets one create, and 100 passes write
// nothing more; a node without a provider ID is named by its address.
func TestNodeNamesDoNotMatter(t *testing.T) {
	w := newWorld(t)
	w.startMachines(1, 2, 3, 4, 5)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{}
	for i, name := range []string{"short", "a.b.example.com", "UPPER", "10.0.0.99", "node-5"} {
		n := node(i + 1)
		n.Name = name
		if i%2 == 1 {
			n.ProviderID = ""
		}
		nodes[podCIDR(i+1)] = n
	}
	if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
		t.Fatal(err)
	}
	if n := w.Writes(); n != 5 {
		t.Errorf("%d writes", n)
	}
	w.Forget()
	for range 100 {
		if diff, err := resync(t.Context(), table, theCluster, nodes); err != nil || len(diff.Changes) != 0 {
			t.Fatalf("%v, %v", diff.Changes, err)
		}
	}
	if n := w.Writes(); n != 0 {
		t.Errorf("%d writes in 100 idle passes", n)
	}
}

// Credentials: a mounted key that was replaced is found, a revoked token is asked
// for anew, and what is refused is told without any secret.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	table := w.table(t)
	w.Revoke()
	if _, err := table.List(t.Context()); vpc.ClassOf(err) != vpc.Denied || err == nil {
		t.Errorf("with a revoked token: %v (%v)", err, vpc.ClassOf(err))
	}
	if _, err := table.List(t.Context()); err != nil {
		t.Errorf("with the next token: %v", err)
	}
	good, err := os.ReadFile(w.config.CredentialsFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"no JSON":     "secret-text",
		"no type":     `{"private_key": "secret-text"}`,
		"odd key":     strings.Replace(string(good), "MII", "secret-text", 1),
		"other user":  strings.Replace(string(good), "controller@", "secret-text@", 1),
		"not there":   "",
		"well-formed": string(good),
	} {
		t.Run(name, func(t *testing.T) {
			c := w.config
			c.CredentialsFile = c.CredentialsFile + "-" + strings.ReplaceAll(name, " ", "-")
			if content != "" {
				if err := os.WriteFile(c.CredentialsFile, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := gcp.New(t.Context(), c)
			switch {
			case content == string(good):
				if err != nil {
					t.Error(err)
				}
			case err == nil || vpc.ClassOf(err) != vpc.Denied || strings.Contains(err.Error(), "secret-text"):
				t.Errorf("%v (%v), want Denied without the secret", err, vpc.ClassOf(err))
			}
		})
	}
}

// Every call names product, version and cluster.
func TestUserAgent(t *testing.T) {
	w := newWorld(t)
	table := w.table(t)
	if _, err := table.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Calls() {
		if !strings.Contains(c.Client, "vpcroute/0.0.0-test (cluster prod)") {
			t.Errorf("%s: user agent %q", c.Operation, c.Client)
		}
	}
}
