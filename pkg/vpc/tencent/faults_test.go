package tencent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

// Over a real socket: the write happened and the connection dropped. What the
// table holds decides, and the SDK sends nothing twice.
func TestLostAnswerOverSocket(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(mode)
			w.listen(t)
			w.startMachines(1, 2)
			table := w.table(t)
			action := writeCall(mode, vpc.Create)
			w.Inject(cloud.Fault{Operation: action, Lost: true})
			apply(t, table, w.create(1), w.create(2))
			if d := cmp.Diff([]string{"10.244.1.0/24 10.0.0.11", "10.244.2.0/24 10.0.0.12"}, w.routes()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			for _, c := range w.Calls(action) {
				if c.Code != "lost" {
					t.Errorf("%s %s was answered %q: the write was repeated", c.Operation, c.Detail, c.Code)
				}
			}
		})
	}
}

// A fault hits each kind of write once; whatever it was, the next try brings the
// table to the wanted state, nothing is made twice and nobody else's fault is
// called success.
func TestEveryFaultOnEveryWrite(t *testing.T) {
	code := func(c string) cloud.Fault { return cloud.Fault{Answer: &cloud.Answer{Code: c, Message: "planted"}} }
	faults := map[string]struct {
		fault cloud.Fault
		class vpc.Class
		done  bool // the write happened, and reading back finds out
	}{
		"answer lost":          {cloud.Fault{Lost: true}, 0, true},
		"proxy page":           {cloud.Fault{Page: http.StatusBadGateway}, vpc.Transient, false},
		"proxy throttles":      {cloud.Fault{Page: http.StatusTooManyRequests}, vpc.Throttled, false},
		"proxy denies":         {cloud.Fault{Page: http.StatusForbidden}, vpc.Denied, false},
		"not an object":        {cloud.Fault{Answer: &cloud.Answer{Status: 500, Code: "InternalError"}}, vpc.Transient, false},
		"throttled":            {code("RequestLimitExceeded"), vpc.Throttled, false},
		"throttled, sub-code":  {code("RequestLimitExceeded.UinLimitExceeded"), vpc.Throttled, false},
		"throttled as a limit": {code("LimitExceeded.ActionLimited"), vpc.Throttled, false},
		"below the API":        {code("InternalError.VpcCommon"), vpc.Transient, false},
		"unknown code":         {code("SomethingNew.Odd"), vpc.Transient, false},
		"no permission":        {code("UnauthorizedOperation.CamNoAuth"), vpc.Denied, false},
		"bad signature":        {code("AuthFailure.SignatureFailure"), vpc.Denied, false},
		"a task is running":    {code("OperationDenied.MutexTaskRunning"), vpc.InProgress, false},
	}
	for _, mode := range bothModes {
		for name, f := range faults {
			for _, op := range []vpc.Op{vpc.Create, vpc.Replace, vpc.Delete} {
				t.Run(fmt.Sprintf("%s/%s/%s", mode, op, name), func(t *testing.T) {
					w := newWorld(mode)
					w.startMachines(1, 2)
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
					fault.Times = 1
					fault.Operation = writeCall(mode, op)
					w.Inject(fault)
					w.Forget()
					err := table.Apply(t.Context(), []vpc.Change{change})[0]
					if n := len(w.Calls(fault.Operation)); n != 1 {
						t.Errorf("%d calls of %s, want 1: nothing is repeated", n, fault.Operation)
					}
					if f.done {
						if err != nil {
							t.Errorf("lost answer: %v", err)
						}
					} else if err == nil || vpc.ClassOf(err) != f.class {
						t.Errorf("%v (%v), want %v", err, vpc.ClassOf(err), f.class)
					}
					apply(t, table, change)
					if d := cmp.Diff(want, w.routes()); d != "" {
						t.Errorf("after the next try (-want +got):\n%s", d)
					}
				})
			}
		}
	}
}

// writeCall is the first call that a change makes.
func writeCall(mode tencent.Mode, op vpc.Op) string {
	switch {
	case mode == tencent.GlobalRoute && op == vpc.Create:
		return "CreateClusterRoute"
	case mode == tencent.GlobalRoute:
		return "DeleteClusterRoute"
	}
	return map[vpc.Op]string{vpc.Create: "CreateRoutes", vpc.Replace: "ReplaceRoutes", vpc.Delete: "DeleteRoutes"}[op]
}

// A proxy's page, an empty body or JSON that is no object never reaches the SDK,
// and its text does not fill the log.
func TestAnswersThatAreNotTheAPIs(t *testing.T) {
	for _, body := range []string{"", "null", "[]", "42", `{"Response":`, "<html>" + strings.Repeat("x", 5000) + "</html>"} {
		t.Run(fmt.Sprintf("%.12q", body), func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			table := w.table(t)
			w.config.Endpoint.Transport = respond{body}
			broken, err := tencent.New(t.Context(), w.config)
			if err == nil {
				t.Fatalf("New takes %q for an answer: %v", body, broken)
			}
			if vpc.ClassOf(err) != vpc.Transient || len(err.Error()) > 400 {
				t.Errorf("%v: %d characters: %v", vpc.ClassOf(err), len(err.Error()), err)
			}
			if _, err := table.List(t.Context()); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

type respond struct{ body string }

func (r respond) RoundTrip(*http.Request) (*http.Response, error) {
	w := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: bodyOf(r.body)}
	return w, nil
}

// Throttled or denied once, the rest of the batch is not tried.
func TestRefusalEndsTheApply(t *testing.T) {
	for _, mode := range bothModes {
		for _, code := range []string{"RequestLimitExceeded.UinLimitExceeded", "UnauthorizedOperation"} {
			t.Run(string(mode)+"/"+code, func(t *testing.T) {
				w := newWorld(mode)
				w.config.BatchSize = 10
				w.startMachines(numbers(1, 250)...)
				table := w.table(t)
				w.Inject(cloud.Fault{Operation: "*[Cc]reate*Route*", Answer: &cloud.Answer{Code: code}})
				var changes []vpc.Change
				for i := 1; i <= 250; i++ {
					changes = append(changes, w.create(i))
				}
				class := vpc.Throttled
				if code == "UnauthorizedOperation" {
					class = vpc.Denied
				}
				for i, err := range table.Apply(t.Context(), changes) {
					if err == nil || vpc.ClassOf(err) != class {
						t.Fatalf("change %d: %v (%v)", i, err, vpc.ClassOf(err))
					}
				}
				// Those that were under way already are many in one mode, one in the other.
				limit := map[tencent.Mode]int{tencent.GlobalRoute: 101, tencent.VPC: 1}[mode]
				if n := w.Writes(); n > limit {
					t.Errorf("%d writes, want at most %d", n, limit)
				}
			})
		}
	}
}

// An endless call ends at its deadline, a cancelled one at once, and neither is
// taken for the cloud's refusal.
func TestDeadlinesAndCancellation(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(mode)
			w.listen(t)
			w.config.CallTimeout = 100 * time.Millisecond
			w.startMachines(1)
			table := w.table(t)
			if _, err := table.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.Inject(cloud.Fault{Delay: time.Hour})
			err := table.Apply(t.Context(), []vpc.Change{w.create(1)})[0]
			if !errors.Is(err, context.DeadlineExceeded) || vpc.ClassOf(err) != vpc.Transient || vpc.IsCancelled(err) {
				t.Errorf("no answer: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := table.Apply(ctx, []vpc.Change{w.create(1)})[0]; !vpc.IsCancelled(err) {
				t.Errorf("cancelled: %v", err)
			}
			if _, err := table.List(ctx); !vpc.IsCancelled(err) {
				t.Errorf("cancelled List: %v", err)
			}
		})
	}
}

// R057: machines die first, their Nodes go later, and ranges and addresses are
// used again: the table never holds more than the live nodes.
func TestRecycledMachines(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(mode)
			table := w.table(t)
			nodes := map[netip.Prefix]vpc.Node{}
			for i := 1; i <= 3; i++ {
				w.startMachines(i)
				nodes[podCIDR(i)] = node(i)
			}
			for cycle := range 100 {
				born := 10 + cycle%7 // addresses come back
				w.startMachines(born)
				nodes[podCIDR(9)] = node(born) // the range is the same each time
				if _, err := resync(t.Context(), table, nodes); err != nil {
					t.Fatalf("cycle %d, node added: %v", cycle, err)
				}
				w.RemoveMachines(theVPC, address(born))
				if _, err := resync(t.Context(), table, nodes); err != nil {
					t.Fatalf("cycle %d, machine gone: %v", cycle, err)
				}
				if cycle%2 == 0 { // else the next node takes the range over at once
					delete(nodes, podCIDR(9))
					if _, err := resync(t.Context(), table, nodes); err != nil {
						t.Fatalf("cycle %d, node gone: %v", cycle, err)
					}
				}
				if n := len(w.routes()); n != len(nodes) {
					t.Fatalf("cycle %d: %d routes for %d nodes: %v", cycle, n, len(nodes), w.routes())
				}
			}
		})
	}
}

// R078: whatever nodes are called and with or without provider IDs, each gets
// one create, and 100 passes write nothing more.
func TestNodeNamesDoNotMatter(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(mode)
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
			if _, err := resync(t.Context(), table, nodes); err != nil {
				t.Fatal(err)
			}
			if n := w.Writes(); mode == tencent.GlobalRoute && n != 5 || mode == tencent.VPC && n != 1 {
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
		})
	}
}

// R083: several interfaces, and every provider ID that is known.
func TestNextHop(t *testing.T) {
	tests := []struct {
		name  string
		node  vpc.Node
		want  vpc.NextHop
		class vpc.Class
		text  string
	}{
		{"numeric zone", vpc.Node{Name: "a", ProviderID: "qcloud:///100003/ins-0a1b2c3d", Addresses: addrs("10.0.0.11")}, "10.0.0.11", 0, ""},
		{"named zone", vpc.Node{Name: "a", ProviderID: "qcloud:///ap-guangzhou-3/ins-0a1b2c3d", Addresses: addrs("10.0.0.11")}, "10.0.0.11", 0, ""},
		{"native node", vpc.Node{Name: "a", ProviderID: "qcloud:///800006/kn-0a1b2c3d", Addresses: addrs("10.0.0.11")}, "10.0.0.11", 0, ""},
		{"no provider ID", vpc.Node{Name: "a", Addresses: addrs("10.0.0.11")}, "10.0.0.11", 0, ""},
		{"IPv6 first", vpc.Node{Name: "a", Addresses: addrs("fd00::1", "10.0.0.11")}, "10.0.0.11", 0, ""},
		{"IPv4 dressed as IPv6", vpc.Node{Name: "a", Addresses: addrs("::ffff:10.0.0.11")}, "10.0.0.11", 0, ""},
		{"no IPv4 address", vpc.Node{Name: "a", Addresses: addrs("fd00::1")}, "", vpc.Invalid, "no internal IPv4 address"},
		{"no address", vpc.Node{Name: "a"}, "", vpc.Invalid, "no internal IPv4 address"},
		{"another cloud's", vpc.Node{Name: "a", ProviderID: "aws:///eu-west-1a/i-0a1b2c3d", Addresses: addrs("10.0.0.11")}, "", vpc.Invalid, `"aws:///eu-west-1a/i-0a1b2c3d" is not a machine of Tencent Cloud`},
		{"no machine in it", vpc.Node{Name: "a", ProviderID: "qcloud:///", Addresses: addrs("10.0.0.11")}, "", vpc.Invalid, "is not a machine"},
	}
	for _, mode := range bothModes {
		w := newWorld(mode)
		table := w.table(t)
		for _, tt := range tests {
			t.Run(string(mode)+"/"+tt.name, func(t *testing.T) {
				got, err := table.NextHop(t.Context(), tt.node, vpc.IPv4)
				checkHop(t, got, err, tt.want, tt.class, tt.text)
			})
		}
		t.Run(string(mode)+"/dual stack", func(t *testing.T) {
			got, err := table.NextHop(t.Context(), node(1), vpc.IPv6)
			checkHop(t, got, err, "", vpc.Invalid, "IPv4 alone")
		})
	}
	// Only mode vpc knows the subnets, and can tell addresses apart.
	w := newWorld(tencent.VPC)
	table := w.table(t)
	three := vpc.Node{Name: "a", Addresses: addrs("192.168.9.9", "10.0.0.11", "172.16.0.5")}
	got, err := table.NextHop(t.Context(), three, vpc.IPv4)
	checkHop(t, got, err, "10.0.0.11", 0, "")
	strange := vpc.Node{Name: "a", Addresses: addrs("192.168.9.9")}
	got, err = table.NextHop(t.Context(), strange, vpc.IPv4)
	checkHop(t, got, err, "", vpc.NotFound, "in a subnet of VPC vpc-1")
	w.Forget()
	for range 50 { // strangers do not become a flood of look-ups
		_, _ = table.NextHop(t.Context(), strange, vpc.IPv4)
	}
	if n := len(w.Calls()); n > 1 {
		t.Errorf("%d calls for 50 nodes that are in no subnet", n)
	}
}

func checkHop(t *testing.T, got vpc.NextHop, err error, want vpc.NextHop, class vpc.Class, text string) {
	t.Helper()
	switch {
	case text == "" && (err != nil || got != want):
		t.Errorf("%q, %v, want %q", got, err, want)
	case text != "" && (err == nil || vpc.ClassOf(err) != class || !strings.Contains(err.Error(), text)):
		t.Errorf("%v (%v), want %v: %q", err, vpc.ClassOf(err), class, text)
	}
}

// Reads that lag behind writes: a create whose answer was lost and that is not
// seen yet is not called success, and the table comes right in the end.
func TestReadsThatLag(t *testing.T) {
	for _, mode := range bothModes {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(mode, func(o *emulated.Options) { o.SeeAfter = time.Minute })
			clock := cloud.NewStepClock(time.Now())
			w.Clock = clock
			w.startMachines(1)
			clock.Step(time.Minute + time.Second)
			table := w.table(t)
			w.Inject(cloud.Fault{Operation: writeCall(mode, vpc.Create), Lost: true, Times: 1})
			if err := table.Apply(t.Context(), []vpc.Change{w.create(1)})[0]; vpc.ClassOf(err) != vpc.Transient || err == nil {
				t.Errorf("lost and not seen: %v", err)
			}
			if err := table.Apply(t.Context(), []vpc.Change{w.create(1)})[0]; vpc.ClassOf(err) != vpc.Exists {
				t.Errorf("there and not seen: %v", err)
			}
			clock.Step(2 * time.Minute)
			apply(t, table, w.create(1))
			if n := len(w.routes()); n != 1 {
				t.Errorf("%d routes", n)
			}
		})
	}
}
