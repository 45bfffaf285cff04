package azure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// A fault hits each kind of write once; whatever it was, the next try brings the
// table to the wanted state, and the SDK sends nothing twice.
func TestEveryFaultOnEveryWrite(t *testing.T) {
	code := func(c string) cloud.Fault { return cloud.Fault{Answer: &cloud.Answer{Code: c, Message: "planted"}} }
	faults := map[string]struct {
		fault cloud.Fault
		class vpc.Class
		done  bool // the write happened, and reading back finds out
	}{
		"answer lost":                 {cloud.Fault{Lost: true}, 0, true},
		"proxy page":                  {cloud.Fault{Page: http.StatusBadGateway}, vpc.Transient, false},
		"proxy throttles":             {cloud.Fault{Page: http.StatusTooManyRequests}, vpc.Throttled, false},
		"proxy denies":                {cloud.Fault{Page: http.StatusForbidden}, vpc.Denied, false},
		"server error":                {code("InternalServerError"), vpc.Transient, false},
		"throttled":                   {code("TooManyRequests"), vpc.Throttled, false},
		"another operation":           {code("RetryableErrorDueToAnotherOperation"), vpc.InProgress, false},
		"no permission":               {code("AuthorizationFailed"), vpc.Denied, false},
		"a policy forbids":            {code("RequestDisallowedByPolicy"), vpc.Denied, false},
		"a lock forbids":              {code("ScopeLocked"), vpc.Denied, false},
		"unknown code, bad request":   {code("SomethingNew"), vpc.Invalid, false},
		"unknown code, limit in name": {code("MaxNumberOfRoutesReached"), vpc.Quota, false},
		"conflict":                    {cloud.Fault{Answer: &cloud.Answer{Status: http.StatusConflict, Code: "Odd"}}, vpc.InProgress, false},
	}
	for name, f := range faults {
		for _, op := range []vpc.Op{vpc.Create, vpc.Replace, vpc.Delete} {
			t.Run(string(op)+"/"+name, func(t *testing.T) {
				w := newWorld()
				table := w.table(t)
				change, want := w.create(1), []string{"10.244.1.0/24 10.0.0.11"}
				if op != vpc.Create {
					apply(t, table, change)
					change = vpc.Change{Op: op, Route: listed(t, table, podCIDR(1))}
					want = nil
				}
				if op == vpc.Replace {
					change.Old = change.Route
					change.Route.NextHop = hop(2)
					want = []string{"10.244.1.0/24 10.0.0.12"}
				}
				fault := f.fault
				fault.Times, fault.Operation = 1, emulated.PutTable
				w.Inject(fault)
				w.Forget()
				err := table.Apply(t.Context(), []vpc.Change{change})[0]
				if n := w.Writes(); n != 1 {
					t.Errorf("%d writes, want 1: nothing is repeated", n)
				}
				if f.done && err != nil {
					t.Errorf("lost answer: %v", err)
				}
				if !f.done && (err == nil || vpc.ClassOf(err) != f.class) {
					t.Errorf("%v (%v), want %v", err, vpc.ClassOf(err), f.class)
				}
				if err != nil && len(err.Error()) > 400 {
					t.Errorf("%d characters: %v", len(err.Error()), err)
				}
				apply(t, table, change)
				if d := cmp.Diff(want, w.routes(theTable)); d != "" {
					t.Errorf("after the next try (-want +got):\n%s", d)
				}
			})
		}
	}
}

// Another program writes the table between reading and writing: its routes stay,
// ours are made, within one Apply. When it never stops, that is told.
func TestRaces(t *testing.T) {
	for _, tt := range []struct {
		name  string
		races int
		class vpc.Class
	}{{"none", 0, 0}, {"one", 1, 0}, {"three", 3, 0}, {"without end", 1000, vpc.InProgress}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			table := w.table(t)
			raced := 0
			w.Watch(func(c cloud.Call) {
				if c.Operation == emulated.GetTable && raced < tt.races {
					raced++
					w.AddRoute(theTable, emulated.Route{Name: fmt.Sprintf("other-%d", raced), AddressPrefix: fmt.Sprintf("192.168.%d.0/24", raced), NextHopType: "None"})
				}
			})
			err := table.Apply(t.Context(), []vpc.Change{w.create(1)})[0]
			w.Watch(nil)
			if tt.class == 0 && err != nil || tt.class != 0 && vpc.ClassOf(err) != tt.class {
				t.Errorf("%v (%v)", err, vpc.ClassOf(err))
			}
			want := raced
			if err == nil {
				want++
			}
			if got := w.routes(theTable); len(got) != want {
				t.Errorf("routes %v, want those of %d races and ours", got, raced)
			}
			if n := w.Writes(); n > 4 {
				t.Errorf("%d writes", n)
			}
		})
	}
}

// What a table has beside our routes is there after a write as it was before:
// tags, the propagation switch, strangers' routes, and what nobody knows yet.
func TestWriteKeepsWhatIsNotOurs(t *testing.T) {
	w := newWorld()
	w.AddRoute(theTable, emulated.Route{Name: "fw", AddressPrefix: "0.0.0.0/0", NextHopType: "VirtualAppliance", NextHopIPAddress: "10.0.63.4"})
	w.Edit(theTable, func(body map[string]any) {
		body["tags"] = map[string]any{"Cluster": "prod", "note": "ä<&>"}
		body["zoneAffinity"] = []any{"1", 2.0}
		p := body["properties"].(map[string]any)
		p["disableBgpRoutePropagation"] = true
		p["futureSwitch"] = map[string]any{"deep": []any{true, nil}}
		p["routes"].([]any)[0].(map[string]any)["properties"].(map[string]any)["futureWeight"] = 7.0
	})
	before := w.Body(theTable)
	table := w.table(t)
	apply(t, table, w.create(1), w.create(2))
	replaced := listed(t, table, podCIDR(1))
	now := replaced
	now.NextHop = hop(3)
	apply(t, table, vpc.Change{Op: vpc.Replace, Route: now, Old: replaced})
	apply(t, table, vpc.Change{Op: vpc.Delete, Route: now}, vpc.Change{Op: vpc.Delete, Route: w.route(2)})
	after := w.Body(theTable)
	// The API shows these in routes, and takes them back without a word.
	shown := after["properties"].(map[string]any)["routes"].([]any)[0].(map[string]any)
	for _, name := range []string{"id", "etag", "type"} {
		delete(shown, name)
	}
	for _, name := range []string{"provisioningState", "hasBgpOverride"} {
		delete(shown["properties"].(map[string]any), name)
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("-before +after\n%s", d)
	}
}

// An operation that fails after the write was taken is an error, and the table's
// failed state does not pass for success: the next Apply writes again.
func TestOperationThatFails(t *testing.T) {
	for code, class := range map[string]vpc.Class{"InternalServerError": vpc.Transient, "RetryableErrorDueToAnotherOperation": vpc.InProgress, "Odd": vpc.Transient} {
		t.Run(code, func(t *testing.T) {
			w := newWorld(func(o *emulated.Options) { o.Polls = 1 })
			table := w.table(t)
			w.FailOperation(code, "planted")
			err := table.Apply(t.Context(), []vpc.Change{w.create(1)})[0]
			if vpc.ClassOf(err) != class || err == nil || !strings.Contains(err.Error(), "planted") {
				t.Errorf("%v (%v), want %v", err, vpc.ClassOf(err), class)
			}
			w.Forget()
			apply(t, table, w.create(1))
			if n := w.Writes(); n != 1 {
				t.Errorf("%d writes after a failed operation, want 1", n)
			}
			if f := table.Preflight(t.Context()); len(f) == 0 {
				t.Error("no finding at all, and the far subnet is not managed")
			}
		})
	}
}

// While another operation is under way the wait hint reaches the caller, and a
// route that the table shows already is not called made.
func TestTableIsBeingUpdated(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.OperationTime = time.Hour })
	w.config.WriteTimeout = 50 * time.Millisecond
	table := w.table(t)
	err := table.Apply(t.Context(), []vpc.Change{w.create(1)})[0]
	if vpc.ClassOf(err) != vpc.InProgress && !errors.Is(err, context.DeadlineExceeded) || err == nil {
		t.Errorf("an operation without end: %v", err)
	}
	errs := table.Apply(t.Context(), []vpc.Change{w.create(1), w.create(2)})
	for i, err := range errs {
		if vpc.ClassOf(err) != vpc.InProgress || err == nil {
			t.Errorf("change %d: %v (%v), want in progress", i, err, vpc.ClassOf(err))
		}
	}
	if wait, ok := vpc.RetryAfter(errs[1]); !ok || wait != 10*time.Second {
		t.Errorf("the hint to wait is %s, %v", wait, ok)
	}
}

// One bad change among many: it alone fails, also when only the cloud knows that
// it is bad.
func TestOneBadChangeStopsNoOther(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.RoutesPerTable = 1000 })
	table := w.table(t)
	changes := []vpc.Change{w.create(1), w.create(2), w.create(3), w.create(4), w.create(5)}
	w.AddRoute(theTable, emulated.Route{Name: "x", AddressPrefix: "10.244.3.0/24", NextHopType: "None"})
	errs := table.Apply(t.Context(), changes)
	for i, err := range errs {
		if i == 2 && vpc.ClassOf(err) != vpc.Exists || i != 2 && err != nil {
			t.Errorf("change %d: %v (%v)", i, err, vpc.ClassOf(err))
		}
	}
	if n := w.Writes(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}

// The subscription's limit is lower than configured: as many routes are made as
// fit, and a bounded number of writes finds out (R070).
func TestLimitIsLowerThanConfigured(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.RoutesPerTable = 50 })
	table := w.table(t)
	var changes []vpc.Change
	for i := range 60 {
		changes = append(changes, w.create(i))
	}
	made := 0
	for i, err := range table.Apply(t.Context(), changes) {
		if err == nil {
			made++
		} else if vpc.ClassOf(err) != vpc.Quota {
			t.Errorf("change %d: %v (%v)", i, err, vpc.ClassOf(err))
		}
	}
	if made != 50 || len(w.routes(theTable)) != 50 {
		t.Errorf("%d answers of success, %d routes, want 50", made, len(w.routes(theTable)))
	}
	if n := w.Writes(); n > 30 {
		t.Errorf("%d writes", n)
	}
}

// Throttled or denied once, the rest is not tried; Retry-After reaches the
// caller.
func TestRefusalEndsTheApply(t *testing.T) {
	for code, class := range map[string]vpc.Class{"TooManyRequests": vpc.Throttled, "AuthorizationFailed": vpc.Denied} {
		t.Run(code, func(t *testing.T) {
			w := newWorld()
			table := w.table(t)
			w.Inject(cloud.Fault{Writes: true, Answer: &cloud.Answer{Code: code, Header: http.Header{"Retry-After": {"17"}}}})
			for i, err := range table.Apply(t.Context(), []vpc.Change{w.create(1), w.create(2), w.create(3)}) {
				wait, _ := vpc.RetryAfter(err)
				if vpc.ClassOf(err) != class || err == nil || wait != 17*time.Second {
					t.Errorf("change %d: %v (%v), wait %s", i, err, vpc.ClassOf(err), wait)
				}
			}
			if n := w.Writes(); n != 1 {
				t.Errorf("%d writes", n)
			}
		})
	}
}

// Over a real socket: an endless call ends at its deadline, a cancelled one at
// once, and a token goes over plain http to this machine alone.
func TestDeadlinesAndCancellation(t *testing.T) {
	w := newWorld()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.config.Endpoint = azure.Endpoint{URL: server.URL}
	w.config.CallTimeout = 200 * time.Millisecond
	table := w.table(t)
	apply(t, table, w.create(1))
	w.Inject(cloud.Fault{Delay: time.Hour})
	err := table.Apply(t.Context(), []vpc.Change{w.create(2)})[0]
	if !errors.Is(err, context.DeadlineExceeded) || vpc.ClassOf(err) != vpc.Transient || vpc.IsCancelled(err) {
		t.Errorf("no answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Apply(ctx, []vpc.Change{w.create(2)})[0]; !vpc.IsCancelled(err) {
		t.Errorf("cancelled: %v", err)
	}
	for _, c := range w.Calls() {
		if !strings.HasPrefix(c.Client, "vpcroute/0.0.0-test") {
			t.Errorf("user agent %q does not name product and version", c.Client)
		}
	}
}

// R057: machines die first, their Nodes go later, and ranges and addresses are
// used again: the table never holds more than the live nodes.
func TestRecycledMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		table := w.table(t)
		nodes := map[netip.Prefix]vpc.Node{}
		for i := 1; i <= 3; i++ {
			w.startMachines(i)
			nodes[podCIDR(i)] = w.node(i)
		}
		for cycle := range 100 {
			time.Sleep(2 * time.Second)
			born := 10 + cycle%7 // addresses come back
			w.startMachines(born)
			nodes[podCIDR(9)] = w.node(born) // the range is the same each time
			if _, err := resync(t.Context(), table, nodes); err != nil {
				t.Fatalf("cycle %d, node added: %v", cycle, err)
			}
			w.RemoveMachine(w.node(born).ProviderID)
			if _, err := resync(t.Context(), table, nodes); err != nil {
				t.Fatalf("cycle %d, machine gone: %v", cycle, err)
			}
			if cycle%2 == 0 { // else the next node takes the range over at once
				delete(nodes, podCIDR(9))
				if _, err := resync(t.Context(), table, nodes); err != nil {
					t.Fatalf("cycle %d, node gone: %v", cycle, err)
				}
			}
			if n := len(w.routes(theTable)); n != len(nodes) {
				t.Fatalf("cycle %d: %d routes for %d nodes: %v", cycle, n, len(nodes), w.routes(theTable))
			}
		}
	})
}

// R078: whatever nodes are called and with or without provider IDs, each gets
// one create, and 100 passes write nothing more.
func TestNodeNamesDoNotMatter(t *testing.T) {
	w := newWorld()
	w.startMachines(1, 2, 3, 4, 5)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{}
	for i, name := range []string{"short", "a.b.example.com", "UPPER", "10.0.0.99", "node-5"} {
		n := w.node(i + 1)
		n.Name = name
		if i%2 == 1 {
			n.ProviderID = ""
		}
		nodes[podCIDR(i+1)] = n
	}
	if _, err := resync(t.Context(), table, nodes); err != nil {
		t.Fatal(err)
	}
	if n := w.Writes(); n != 1 {
		t.Errorf("%d writes", n)
	}
	w.Forget()
	for range 100 {
		if diff, err := resync(t.Context(), table, nodes); err != nil || len(diff.Changes) != 0 {
			t.Fatalf("%v, %v", diff.Changes, err)
		}
	}
	if n := w.Writes(); n != 0 {
		t.Errorf("%d writes in 100 idle passes", n)
	}
}

// Ownership is a whole name: neither a longer cluster id, nor another cluster,
// nor a name of ours on another range counts as ours (R080, R081: leftovers of
// another installation are seen as such).
func TestOwnership(t *testing.T) {
	w := newWorld()
	apply(t, w.table(t), w.create(1))
	ours := w.Routes(theTable)[0]
	if len(ours.Name) > 80 || strings.Contains(ours.Name, theCluster) {
		t.Errorf("name %q", ours.Name)
	}
	for _, other := range []string{"prod", "prod-10", "Prod-1", "stage"} {
		w.config.Owner = other
		if r := listed(t, w.table(t), podCIDR(1)); r.Owner == other || !strings.HasPrefix(r.Owner, "vpcroute-") {
			t.Errorf("cluster %q takes the route of %q for %q's", other, theCluster, r.Owner)
		}
	}
	w.config.Owner = theCluster
	w.AddRoute(theTable, emulated.Route{Name: strings.Replace(ours.Name, "10.244.1.0", "10.244.2.0", 1), AddressPrefix: "10.244.7.0/24", NextHopType: "VirtualAppliance", NextHopIPAddress: "10.0.0.12"})
	table := w.table(t)
	if r := listed(t, table, netip.MustParsePrefix("10.244.7.0/24")); r.Owner != "" {
		t.Errorf("a name on another range: owner %q", r.Owner)
	}
	err := table.Apply(t.Context(), []vpc.Change{w.create(2)})[0]
	if vpc.ClassOf(err) != vpc.Exists || !strings.Contains(fmt.Sprint(err), "10.244.7.0/24") {
		t.Errorf("a create whose name is taken: %v (%v)", err, vpc.ClassOf(err))
	}
	// Somebody turned a route of ours into another kind: it is replaced in place.
	w.Edit(theTable, func(body map[string]any) {
		r := body["properties"].(map[string]any)["routes"].([]any)[0].(map[string]any)["properties"].(map[string]any)
		r["nextHopType"] = "None"
		delete(r, "nextHopIpAddress")
	})
	was := listed(t, table, podCIDR(1))
	if was.Owner != theCluster || was.NextHop != "" {
		t.Errorf("of another kind: %+v", was)
	}
	apply(t, table, vpc.Change{Op: vpc.Replace, Route: w.route(1), Old: was})
	if got := w.Routes(theTable)[0]; got != ours {
		t.Errorf("%+v, want %+v", got, ours)
	}
}
