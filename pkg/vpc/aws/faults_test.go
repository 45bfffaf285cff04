package aws_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
)

// Over a real socket: the write happened and the connection dropped. What the
// table holds decides, and the SDK sends nothing twice, whatever the environment
// says about attempts.
func TestLostAnswerOverSocket(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "5")
	t.Setenv("AWS_ACCESS_KEY_ID", emulated.Defaults().AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", emulated.Defaults().SecretAccessKey)
	w := newWorld()
	w.listen(t)
	w.startMachines(1, 2)
	account, err := aws.OpenAccount(t.Context(), aws.AccountOptions{Region: emulated.Defaults().Region})
	if err != nil {
		t.Fatal(err)
	}
	w.config.Account = account
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "CreateRoute", Lost: true})
	apply(t, table, create(1), create(2))
	if d := cmp.Diff([]string{"10.244.1.0/24 eni-1", "10.244.2.0/24 eni-2"}, w.routes(theTable)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if n := len(w.Calls("CreateRoute")); n != 2 {
		t.Errorf("%d calls of CreateRoute for two routes: writes were repeated", n)
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
		"captive portal":       {cloud.Fault{Page: http.StatusOK}, vpc.Transient, false},
		"proxy throttles":      {cloud.Fault{Page: http.StatusTooManyRequests}, vpc.Throttled, false},
		"proxy denies":         {cloud.Fault{Page: http.StatusForbidden}, vpc.Denied, false},
		"throttled":            {code("RequestLimitExceeded"), vpc.Throttled, false},
		"throttled, old code":  {code("Client.RequestLimitExceeded"), vpc.Throttled, false},
		"throttled, SDK code":  {code("EC2ThrottledException"), vpc.Throttled, false},
		"the API's own fault":  {code("InternalError"), vpc.Transient, false},
		"unavailable":          {code("Unavailable"), vpc.Transient, false},
		"unknown code":         {code("SomethingNew"), vpc.Transient, false},
		"no permission":        {code("UnauthorizedOperation"), vpc.Denied, false},
		"bad signature":        {code("SignatureDoesNotMatch"), vpc.Denied, false},
		"the clock is wrong":   {code("RequestExpired"), vpc.Denied, false},
		"something under way":  {code("IncorrectState"), vpc.InProgress, false},
		"the VPC's other code": {code("InvalidParameterException"), vpc.Transient, false},
	}
	for name, f := range faults {
		for _, op := range []vpc.Op{vpc.Create, vpc.Replace, vpc.Delete} {
			t.Run(fmt.Sprintf("%s/%s", op, name), func(t *testing.T) {
				w := newWorld()
				w.startMachines(1, 2)
				table := w.table(t)
				change, want := create(1), []string{"10.244.1.0/24 eni-1"}
				if op != vpc.Create {
					apply(t, table, change)
					change, want = vpc.Change{Op: op, Route: listed(t, table, podCIDR(1))}, nil
				}
				if op == vpc.Replace {
					change.Old = change.Route
					change.Route.NextHop = hop(2)
					want = []string{"10.244.1.0/24 eni-2"}
				}
				fault := f.fault
				fault.Times = 1
				fault.Operation = map[vpc.Op]string{vpc.Create: "CreateRoute", vpc.Replace: "ReplaceRoute", vpc.Delete: "DeleteRoute"}[op]
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
				if d := cmp.Diff(want, w.routes(theTable)); d != "" {
					t.Errorf("after the next try (-want +got):\n%s", d)
				}
			})
		}
	}
}

// A page, an empty body or another operation's answer never passes for an empty
// route table, and its text does not fill the log.
func TestAnswersThatAreNotTheAPIs(t *testing.T) {
	for _, body := range []string{
		"", "null", "<DescribeRouteTablesResponse", "<Response><Errors></Errors></Response>", "<DescribeVpcsResponse></DescribeVpcsResponse>",
		"<html><body>" + strings.Repeat("x", 5000) + "</body></html>",
	} {
		t.Run(fmt.Sprintf("%.20q", body), func(t *testing.T) {
			w := newWorld()
			table := w.table(t)
			w.config.Transport = respond{body}
			if broken, err := aws.New(t.Context(), w.config); err == nil {
				t.Fatalf("New takes %q for an answer: %v", body, broken)
			} else if vpc.ClassOf(err) != vpc.Transient || len(err.Error()) > 400 {
				t.Errorf("%v: %d characters: %v", vpc.ClassOf(err), len(err.Error()), err)
			}
			if _, err := table.List(t.Context()); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

type respond struct{ body string }

func (r respond) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.body)), Request: q}, nil
}

// Throttled or denied once, the rest is not tried, and the text stays short.
func TestRefusalEndsTheApply(t *testing.T) {
	for code, class := range map[string]vpc.Class{"RequestLimitExceeded": vpc.Throttled, "UnauthorizedOperation": vpc.Denied} {
		t.Run(code, func(t *testing.T) {
			w := newWorld()
			w.startMachines(numbers(1, 250)...)
			table := w.table(t)
			if code == "UnauthorizedOperation" {
				w.Deny("CreateRoute")
			} else {
				w.Inject(cloud.Fault{Operation: "CreateRoute", Answer: &cloud.Answer{Code: code}})
			}
			var changes []vpc.Change
			for i := 1; i <= 250; i++ {
				changes = append(changes, create(i))
			}
			for i, err := range table.Apply(t.Context(), changes) {
				if err == nil || vpc.ClassOf(err) != class {
					t.Fatalf("change %d: %v (%v)", i, err, vpc.ClassOf(err))
				}
				if class == vpc.Denied && (len(err.Error()) > 400 || !strings.Contains(err.Error(), "allow ec2:CreateRoute in the IAM policy")) {
					t.Fatalf("%d characters: %v", len(err.Error()), err)
				}
			}
			if n := w.Writes(); n > 101 { // those that were under way already
				t.Errorf("%d writes, want at most 101", n)
			}
		})
	}
}

// An endless call ends at its deadline, a cancelled one at once, and neither is
// taken for the cloud's refusal.
func TestDeadlinesAndCancellation(t *testing.T) {
	w := newWorld()
	w.listen(t)
	w.config.CallTimeout = 100 * time.Millisecond
	w.startMachines(1)
	table := w.table(t)
	if _, err := table.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Inject(cloud.Fault{Delay: time.Hour})
	err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]
	if !errors.Is(err, context.DeadlineExceeded) || vpc.ClassOf(err) != vpc.Transient || vpc.IsCancelled(err) {
		t.Errorf("no answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Apply(ctx, []vpc.Change{create(1)})[0]; !vpc.IsCancelled(err) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := table.List(ctx); !vpc.IsCancelled(err) {
		t.Errorf("cancelled List: %v", err)
	}
}

// R057: machines die first, their Nodes go later, and ranges and addresses are
// used again: the table never holds more than the live nodes.
func TestRecycledMachines(t *testing.T) {
	for name, option := range variants() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(option)
			w.startMachines(1, 2, 3)
			nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1), podCIDR(2): node(2), podCIDR(3): node(3)}
			for cycle := range 100 {
				// A table that was opened anew, as after a restart, has seen nothing.
				table := w.table(t)
				born := 10 + cycle
				w.startMachines(born)
				nodes[podCIDR(9)] = node(born) // the range is the same each time
				if _, err := w.resync(t.Context(), table, nodes); err != nil {
					t.Fatalf("cycle %d, node added: %v", cycle, err)
				}
				w.Terminate(instance(born))
				if _, err := w.resync(t.Context(), table, nodes); err != nil {
					t.Fatalf("cycle %d, machine gone: %v", cycle, err)
				}
				if cycle%2 == 0 { // else the next node takes the range over at once
					delete(nodes, podCIDR(9))
					if _, err := w.resync(t.Context(), table, nodes); err != nil {
						t.Fatalf("cycle %d, node gone: %v", cycle, err)
					}
				}
				if n := len(w.Routes(theTable)) - 3; n != len(nodes) { // three are local
					t.Fatalf("cycle %d: %d routes for %d nodes: %v", cycle, n, len(nodes), w.Routes(theTable))
				}
			}
		})
	}
}

// R078: names of nodes do not matter; one create each, then nothing.
func TestNodeNamesDoNotMatter(t *testing.T) {
	w := newWorld()
	w.startMachines(1, 2, 3, 4, 5)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{}
	for i, name := range []string{"short", "short.eu-central-1.compute.internal", "UPPER", "10.0.0.14", "i-00000005"} {
		n := node(i + 1)
		n.Name = name
		if i%2 == 0 {
			n.ProviderID = ""
		}
		nodes[podCIDR(i+1)] = n
	}
	for range 100 {
		if _, err := w.resync(t.Context(), table, nodes); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Writes(); n != 5 {
		t.Errorf("%d writes for 5 nodes in 100 passes", n)
	}
}

// Reads that lag behind writes: a create whose answer was lost and that is not
// seen yet is not called success, and the table comes right in the end.
func TestReadsThatLag(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.SeeAfter = time.Minute })
	clock := cloud.NewStepClock(time.Now())
	w.Clock = clock
	w.startMachines(1)
	clock.Step(time.Minute + time.Second)
	table := w.table(t)
	w.Inject(cloud.Fault{Operation: "CreateRoute", Lost: true, Times: 1})
	if err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]; err == nil || vpc.ClassOf(err) != vpc.Transient {
		t.Errorf("lost and not seen: %v", err)
	}
	if err := table.Apply(t.Context(), []vpc.Change{create(1)})[0]; err == nil || vpc.ClassOf(err) != vpc.Exists {
		t.Errorf("there and not seen: %v", err)
	}
	// A delete is sent although the route does not show yet, or it would stay.
	apply(t, table, vpc.Change{Op: vpc.Delete, Route: route(1)})
	if n := len(w.routes(theTable)); n != 0 {
		t.Errorf("%d routes left", n)
	}
	apply(t, table, create(1))
	clock.Step(2 * time.Minute)
	apply(t, table, create(1))
	if n := len(w.routes(theTable)); n != 1 {
		t.Errorf("%d routes", n)
	}
}

// Every request names product, version and cluster.
func TestRequestsNameTheProgram(t *testing.T) {
	w := newWorld()
	w.startMachines(1)
	table := w.table(t)
	apply(t, table, create(1))
	if _, err := table.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Calls() {
		if !strings.Contains(c.Client, "vpcroute/0.0.0-test") || !strings.Contains(c.Client, "cluster/"+theCluster) {
			t.Errorf("%s came from %q", c.Operation, c.Client)
		}
	}
}
