package aws_test

import (
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

// R083: the check of the interface that the route leads to is switched off
// before the route is made, once, and no other interface is touched.
func TestCheckIsSwitchedOff(t *testing.T) {
	w := newWorld()
	w.config.Tables = []string{theTable, farTable}
	w.startChecked(true, 1, 2)
	w.AddInterfaces(emulated.Interface{ID: "eni-1b", Subnet: "subnet-near", Instance: instance(1), Device: 1, Addresses: addrs("10.0.9.9"), Check: true})
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1), prefix("fd00:10:244:1::/64"): node(1)}
	for range 3 {
		if _, err := w.resync(t.Context(), table, nodes); err != nil {
			t.Fatal(err)
		}
	}
	if w.Check("eni-1") || !w.Check("eni-1b") || !w.Check("eni-2") {
		t.Errorf("checks: %v %v %v, want only that of eni-1 off", w.Check("eni-1"), w.Check("eni-1b"), w.Check("eni-2"))
	}
	calls := w.Calls("ModifyNetworkInterfaceAttribute", "CreateRoute")
	if calls[0].Operation != "ModifyNetworkInterfaceAttribute" {
		t.Errorf("first came %s: packets would be dropped for a while", calls[0].Operation)
	}
	if n := len(w.Calls("CreateRoute")); n != 4 {
		t.Errorf("%d routes were made", n)
	}
}

// Somebody switches the check on again: the next pass finds out and repairs it
// without a write to the route.
func TestCheckThatCameBack(t *testing.T) {
	w := newWorld()
	w.startMachines(1)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1)}
	if _, err := w.resync(t.Context(), table, nodes); err != nil {
		t.Fatal(err)
	}
	w.SetCheck("eni-1", true)
	w.Forget()
	diff, err := w.resync(t.Context(), table, nodes)
	if err != nil || len(diff.Changes) != 1 || !strings.Contains(diff.Changes[0].Reason, "source/destination check of eni-1 is on") {
		t.Errorf("%v, %v", diff.Changes, err)
	}
	if n := len(w.Calls("CreateRoute", "ReplaceRoute", "DeleteRoute")); n != 0 || w.Check("eni-1") {
		t.Errorf("%d writes to the route, check %v", n, w.Check("eni-1"))
	}
	if diff, err := w.resync(t.Context(), table, nodes); err != nil || len(diff.Changes) != 0 {
		t.Errorf("the pass after: %v, %v", diff.Changes, err)
	}
}

// Reads that lag show the check still on: it is not switched off over and over.
func TestCheckAndReadsThatLag(t *testing.T) {
	w := newWorld(func(o *emulated.Options) { o.SeeAfter = time.Minute })
	clock := cloud.NewStepClock(time.Now())
	w.Clock = clock
	w.startChecked(true, 1)
	clock.Step(time.Minute + time.Second)
	table := w.table(t)
	apply(t, table, create(1))
	clock.Step(30 * time.Second)
	for range 3 {
		if _, err := table.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, table, vpc.Change{Op: vpc.Create, Route: vpc.Route{Table: theTable, Destination: prefix("fd00:10:244:1::/64"), NextHop: hop(1)}})
		w.Remove(theTable, "fd00:10:244:1::/64")
	}
	if n := len(w.Calls("ModifyNetworkInterfaceAttribute")); n != 1 {
		t.Errorf("switched off %d times", n)
	}
}

// R083: no permission to switch it off is told for that node, with the
// permission, and costs no other node its route.
func TestCheckThatCannotBeSwitchedOff(t *testing.T) {
	w := newWorld()
	w.startChecked(true, 1)
	w.startMachines(2)
	w.Deny("ModifyNetworkInterfaceAttribute")
	table := w.table(t)
	if _, err := table.NextHop(t.Context(), node(1), vpc.IPv4); err != nil {
		t.Fatal(err)
	}
	errs := table.Apply(t.Context(), []vpc.Change{create(1), create(2)})
	for _, part := range []string{"source/destination check of eni-1 is on and cannot be switched off", "allow ec2:ModifyNetworkInterfaceAttribute"} {
		if errs[0] == nil || !strings.Contains(errs[0].Error(), part) {
			t.Errorf("%v\nlacks %q", errs[0], part)
		}
	}
	if class := vpc.ClassOf(errs[0]); class != vpc.Transient || errs[1] != nil {
		t.Errorf("class %v, and the other node: %v", class, errs[1])
	}
	if d := cmp.Diff([]string{"10.244.2.0/24 eni-2"}, w.routes(theTable)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	w.Allow("ModifyNetworkInterfaceAttribute")
	apply(t, table, create(1))
}

// With Report the check is left alone, the route is made, and Preflight says
// why no packet arrives.
func TestCheckThatIsOnlyReported(t *testing.T) {
	w := newWorld()
	w.config.Check = aws.Report
	w.startChecked(true, 1)
	table := w.table(t)
	nodes := map[netip.Prefix]vpc.Node{podCIDR(1): node(1)}
	for range 2 {
		if _, err := w.resync(t.Context(), table, nodes); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Writes(); n != 1 || !w.Check("eni-1") {
		t.Errorf("%d writes, check %v", n, w.Check("eni-1"))
	}
	checkFindings(t, table.Preflight(t.Context()), []finding{
		{vpc.SeverityError, "interface eni-1", "no packet reaches the pods of node node-1"},
	})
}
