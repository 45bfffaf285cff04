package vpc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Routes are written as one line each:
//
//	TABLE DESTINATION > NEXTHOP [owner=X] [node=X] [id=X] [text=X] [blackhole] [dropped=X]
//
// where "-" stands for nothing.
func parseRoutes(t testing.TB, text string) []Route {
	t.Helper()
	var routes []Route
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			routes = append(routes, parseRoute(t, line))
		}
	}
	return routes
}

func parseRoute(t testing.TB, line string) Route {
	t.Helper()
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[2] != ">" {
		t.Fatalf("route %q is not TABLE DESTINATION > NEXTHOP", line)
	}
	dash := func(s string) string { return strings.Trim(s, "-") }
	r := Route{Table: dash(fields[0]), NextHop: NextHop(dash(fields[3]))}
	if d := dash(fields[1]); d != "" {
		r.Destination = netip.MustParsePrefix(d)
	}
	for _, field := range fields[4:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "owner":
			r.Owner = value
		case "node":
			r.Node = value
		case "id":
			r.ID = value
		case "text":
			r.Text = value
		case "blackhole":
			r.Blackhole = true
		case "dropped":
			r.Dropped = value
		default:
			t.Fatalf("route %q has an unknown field %q", line, field)
		}
	}
	return r
}

func entryText(r Route) string {
	name := r.Text
	if name == "" {
		name = r.Destination.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%s %s > %s", r.Table, name, r.NextHop), " ")
}

// diffText writes a Diff as one line per item; the reasons are left out.
func diffText(d Diff) string {
	var b strings.Builder
	for _, c := range d.Changes {
		from := ""
		if c.Op == Replace {
			from = " from " + string(c.Old.NextHop)
		}
		fmt.Fprintf(&b, "%s %s%s\n", c.Op, entryText(c.Route), from)
	}
	for _, c := range d.Held {
		fmt.Fprintf(&b, "held %s %s\n", c.Op, entryText(c.Route))
	}
	for _, c := range d.Conflicts {
		fmt.Fprintf(&b, "conflict %s %s\n", entryText(c.Route), c.Node)
	}
	return b.String()
}

func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return strings.ReplaceAll(b.String(), "\n\n", "\n")
}

var testRules = Rules{
	Owner:  "prod",
	Ranges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10::/48")},
	Tables: []string{"t1"},
}

// with returns the test rules changed by f.
func with(f func(*Rules)) Rules {
	r := testRules
	f(&r)
	return r
}

func TestPlan(t *testing.T) {
	ledger := func(text string) Rules {
		return with(func(r *Rules) { r.Ledger = parseRoutes(t, text) })
	}
	twoTables := with(func(r *Rules) { r.Tables = []string{"t2", "t1", "t2"} })
	for _, tt := range []struct {
		name            string
		desired, actual string
		rules           Rules
		want            string
		reason          string // a part of some reason
	}{
		{
			name:    "empty table gets every route, IPv4 before IPv6",
			desired: "- fd00:10:0:1::/64 > i-1 node=a\n - 10.244.2.0/24 > i-2 node=b\n - 10.244.1.0/24 > i-1 node=a",
			want:    "create t1 10.244.1.0/24 > i-1\n create t1 10.244.2.0/24 > i-2\n create t1 fd00:10:0:1::/64 > i-1",
			reason:  "node b has 10.244.2.0/24 and the table has no route to it",
		},
		{
			name:    "right route of ours needs nothing",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod",
		},
		{
			name:    "each of several tables gets the route, a table named twice once",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod",
			rules:   twoTables,
			want:    "create t2 10.244.1.0/24 > i-1",
		},
		{
			name:    "entries of an unmanaged table are left alone whosever they are",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod\n t9 10.244.1.0/24 > i-9 owner=prod\n t9 10.244.3.0/24 > i-9 owner=prod\n t9 10.244.4.0/24 > i-9",
		},
		{
			name:    "wrong next hop is replaced, not deleted and created",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-9 owner=prod",
			want:    "replace t1 10.244.1.0/24 > i-1 from i-9",
			reason:  "leads to i-9",
		},
		{
			name:    "blackhole of ours is replaced when the range has a new node, R057",
			desired: "- 10.244.1.0/24 > i-2 node=b",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod blackhole",
			want:    "replace t1 10.244.1.0/24 > i-2 from i-1",
			reason:  "leads nowhere (i-1 is gone)",
		},
		{
			name:   "blackhole of ours that nobody wants is deleted, R057",
			actual: "t1 10.244.1.0/24 > i-1 owner=prod blackhole",
			want:   "delete t1 10.244.1.0/24 > i-1",
			reason: "no node has 10.244.1.0/24 any more",
		},
		{
			name:   "blackhole whose next hop the cloud forgot is ours by table and destination of the ledger, R057",
			actual: "t1 10.244.1.0/24 > - blackhole\n t1 10.244.2.0/24 > - blackhole",
			rules:  ledger("t1 10.244.1.0/24 > i-1"),
			want:   "delete t1 10.244.1.0/24 > \n conflict t1 10.244.2.0/24 >",
		},
		{
			name:    "right next hop that the cloud calls gone is reported, not written again and again",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod blackhole",
			want:    "conflict t1 10.244.1.0/24 > i-1 a",
			reason:  "check the machine of node a",
		},
		{
			name:    "right next hop whose packets the cloud drops is put right in place, and only where it is ours, R083",
			desired: "- 10.244.1.0/24 > i-1 node=a\n - 10.244.2.0/24 > i-2 node=b",
			actual:  "t1 10.244.1.0/24 > i-1 dropped=check-on\n t1 10.244.2.0/24 > i-2 dropped=check-on",
			rules:   ledger("t1 10.244.1.0/24 > i-1"),
			want:    "replace t1 10.244.1.0/24 > i-1 from i-1",
			reason:  "its packets are dropped: check-on",
		},
		{
			name:   "deleted node's route goes",
			actual: "t1 10.244.1.0/24 > i-1 owner=prod",
			want:   "delete t1 10.244.1.0/24 > i-1",
		},
		{
			name:   "the ledger proves a route only with the same table and next hop",
			actual: "t1 10.244.1.0/24 > i-1\n t1 10.244.2.0/24 > i-2\n t1 10.244.3.0/24 > i-3",
			rules:  ledger("t1 10.244.1.0/24 > i-1\n t1 10.244.2.0/24 > i-9\n t2 10.244.3.0/24 > i-3"),
			want:   "delete t1 10.244.1.0/24 > i-1\n conflict t1 10.244.2.0/24 > i-2\n conflict t1 10.244.3.0/24 > i-3",
		},
		{
			name:   "another owner's mark outweighs the ledger, and a mark that starts like ours is another's",
			actual: "t1 10.244.1.0/24 > i-1 owner=prod-eu\n t1 10.244.2.0/24 > i-2 owner=pro",
			rules:  ledger("t1 10.244.1.0/24 > i-1\n t1 10.244.2.0/24 > i-2"),
			want:   "conflict t1 10.244.1.0/24 > i-1\n conflict t1 10.244.2.0/24 > i-2",
			reason: `belongs to another owner ("prod-eu")`,
		},
		{
			name:   "without an owner of our own no mark is ours",
			actual: "t1 10.244.1.0/24 > i-1",
			rules:  with(func(r *Rules) { r.Owner = "" }),
			want:   "conflict t1 10.244.1.0/24 > i-1",
		},
		{
			name:    "foreign entry for exactly a wanted range blocks it",
			desired: "- 10.244.1.0/24 > i-1 node=a\n - 10.244.2.0/24 > i-2 node=b",
			actual:  "t1 10.244.1.0/24 > i-9",
			want:    "create t1 10.244.2.0/24 > i-2\n conflict t1 10.244.1.0/24 > i-9 a",
			reason:  "so node a gets no route",
		},
		{
			name:    "right unmarked entry does its work and is nobody's business",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1",
		},
		{
			name:    "right entry of another installation is reported and left, R080 R081",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=staging",
			want:    "conflict t1 10.244.1.0/24 > i-1",
			reason:  "make sure that only one controller writes this range",
		},
		{
			name:    "foreign blackhole to the right next hop blocks",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 blackhole",
			want:    "conflict t1 10.244.1.0/24 > i-1 a",
		},
		{
			name:    "default route, supernet and strangers elsewhere are silent, R082",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 0.0.0.0/0 > igw\n t1 ::/0 > igw\n t1 10.0.0.0/8 > vgw\n t1 10.245.1.0/24 > i-9\n t1 fd00::/8 > vgw",
			want:    "create t1 10.244.1.0/24 > i-1",
		},
		{
			name:    "foreign part of a wanted range is reported and does not keep the route from being made",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.128/25 > i-9",
			want:    "create t1 10.244.1.0/24 > i-1\n conflict t1 10.244.1.128/25 > i-9",
			reason:  "takes packets from 10.244.1.0/24 of node a",
		},
		{
			name:   "foreign entry anywhere in our range, or all of it, is reported",
			actual: "t1 10.244.77.0/24 > i-9\n t1 10.244.0.0/16 > i-9",
			want:   "conflict t1 10.244.0.0/16 > i-9\n conflict t1 10.244.77.0/24 > i-9",
		},
		{
			name:    "odd entries are listed for nothing, and with our mark reported",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 - > vpce-1 text=pl-12345\n t1 10.244.1.9/24 > i-8 text=10.244.1.9/24\n t1 - > i-7 text=odd owner=prod",
			want:    "create t1 10.244.1.0/24 > i-1\n conflict t1 odd > i-7\n conflict t1 10.244.1.9/24 > i-8",
		},
		{
			name:    "podCIDR outside the cluster CIDRs is refused, also when its first or last address is inside, R058",
			desired: "- 10.245.1.0/24 > i-1 node=a\n - 10.240.0.0/12 > i-2 node=b\n - 10.244.0.0/15 > i-3 node=c",
			want:    "conflict 10.240.0.0/12 > i-2 b\n conflict 10.244.0.0/15 > i-3 c\n conflict 10.245.1.0/24 > i-1 a",
			reason:  "outside the cluster CIDRs [10.244.0.0/16 fd00:10::/48]",
		},
		{
			name:    "malformed podCIDRs are refused one by one and cost no route that is there",
			desired: "- 10.244.1.7/24 > i-1 node=a\n - - > i-2 node=b\n - ::ffff:10.244.3.0/120 > i-3 node=c\n - 10.244.4.0/24 > i-4 node=d",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod",
			want: `create t1 10.244.4.0/24 > i-4
				conflict invalid Prefix > i-2 b
				conflict 10.244.1.7/24 > i-1 a
				conflict ::ffff:10.244.3.0/120 > i-3 c`,
			reason: "has host bits set: the range is 10.244.1.0/24",
		},
		{
			name:    "podCIDR that left the cluster CIDRs while its node lives keeps its route",
			desired: "- 10.245.1.0/24 > i-1 node=a",
			actual:  "t1 10.245.1.0/24 > i-1 owner=prod",
			want:    "conflict 10.245.1.0/24 > i-1 a",
		},
		{
			name:   "leftover of ours outside the cluster CIDRs is deleted all the same, R058",
			actual: "t1 10.245.1.0/24 > i-1 owner=prod",
			want:   "delete t1 10.245.1.0/24 > i-1",
		},
		{
			name:    "unknown next hop makes nothing and keeps what is there",
			desired: "- 10.244.1.0/24 > - node=a\n - 10.244.2.0/24 > - node=b",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod",
			want:    "conflict 10.244.1.0/24 >  a\n conflict 10.244.2.0/24 >  b",
			reason:  "the next hop of node a is not known",
		},
		{
			name:    "no managed table is a conflict for every route",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			rules:   with(func(r *Rules) { r.Tables = nil }),
			want:    "conflict 10.244.1.0/24 > i-1 a",
		},
		{
			name:    "two nodes, one podCIDR: the holder keeps it, R079",
			desired: "- 10.244.1.0/24 > i-1 node=a\n - 10.244.1.0/24 > i-2 node=b",
			actual:  "t1 10.244.1.0/24 > i-2 owner=prod",
			want:    "conflict 10.244.1.0/24 > i-1 a",
			reason:  "overlaps 10.244.1.0/24 of node b, which has its route already",
		},
		{
			name:    "the holder in one table is the holder in all",
			desired: "- 10.244.1.0/24 > i-1 node=a\n - 10.244.1.0/24 > i-2 node=b",
			actual:  "t2 10.244.1.0/24 > i-2 owner=prod",
			rules:   twoTables,
			want:    "create t1 10.244.1.0/24 > i-2\n conflict 10.244.1.0/24 > i-1 a",
		},
		{
			name:    "two nodes, one podCIDR, no holder: nobody gets it and what is there stays",
			desired: "- 10.244.1.0/24 > i-1 node=a\n - 10.244.1.0/24 > i-2 node=b",
			actual:  "t1 10.244.1.0/24 > i-9 owner=prod",
			want:    "conflict 10.244.1.0/24 > i-1 a\n conflict 10.244.1.0/24 > i-2 b",
			reason:  "overlaps 10.244.1.0/24 of node b, which claims it as well",
		},
		{
			name:    "two nodes on one machine with one podCIDR ask for the same",
			desired: "- 10.244.1.0/24 > i-1 node=b\n - 10.244.1.0/24 > i-1 node=a",
			want:    "create t1 10.244.1.0/24 > i-1",
			reason:  "node a has",
		},
		{
			name:    "one node that claims everything loses against all others",
			desired: "- 10.244.0.0/16 > i-9 node=z\n - 10.244.1.0/24 > i-1 node=a\n - 10.244.2.0/24 > i-2 node=b",
			want:    "create t1 10.244.1.0/24 > i-1\n create t1 10.244.2.0/24 > i-2\n conflict 10.244.0.0/16 > i-9 z",
			reason:  "give node z a range of its own",
		},
		{
			name:    "a wide range that has its route keeps it against newcomers",
			desired: "- 10.244.0.0/20 > i-9 node=z\n - 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.0.0/20 > i-9 owner=prod",
			want:    "conflict 10.244.1.0/24 > i-1 a",
		},
		{
			name:    "overlapping ranges that both have routes stay and are both reported",
			desired: "- 10.244.0.0/20 > i-9 node=z\n - 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.0.0/20 > i-9 owner=prod\n t1 10.244.1.0/24 > i-1 owner=prod",
			want:    "conflict 10.244.0.0/20 > i-9 z\n conflict 10.244.1.0/24 > i-1 a",
		},
		{
			name:    "nested ranges of one node are no contest",
			desired: "- 10.244.0.0/20 > i-1 node=a\n - 10.244.1.0/24 > i-1 node=a",
			want:    "create t1 10.244.0.0/20 > i-1\n create t1 10.244.1.0/24 > i-1",
		},
		{
			name:    "second entries of ours are deleted, the right one stays",
			desired: "- 10.244.1.0/24 > i-5 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod\n t1 10.244.1.0/24 > i-5 owner=prod\n t1 10.244.1.0/24 > i-9 owner=prod",
			want:    "delete t1 10.244.1.0/24 > i-1\n delete t1 10.244.1.0/24 > i-9",
			reason:  "takes packets from it",
		},
		{
			name:    "of two wrong entries of ours one is replaced and the other deleted after it",
			desired: "- 10.244.1.0/24 > i-5 node=a",
			actual:  "t1 10.244.1.0/24 > i-9 owner=prod\n t1 10.244.1.0/24 > i-1 owner=prod",
			want:    "replace t1 10.244.1.0/24 > i-5 from i-1\n delete t1 10.244.1.0/24 > i-9",
		},
		{
			name:    "one entry listed twice is not its own duplicate",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod id=x\n t1 10.244.1.0/24 > i-1 owner=prod id=x blackhole",
		},
		{
			name:    "two handles with one next hop are duplicates, and the live one stays",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod id=x blackhole\n t1 10.244.1.0/24 > i-1 owner=prod id=y",
			want:    "delete t1 10.244.1.0/24 > i-1",
			reason:  "leads nowhere",
		},
		{
			name:    "beside a right foreign entry a wrong one of ours is deleted",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1\n t1 10.244.1.0/24 > i-9 owner=prod",
			want:    "delete t1 10.244.1.0/24 > i-9",
		},
		{
			name:    "beside a wrong foreign entry ours is kept right and the stranger reported",
			desired: "- 10.244.1.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-8\n t1 10.244.1.0/24 > i-9 owner=prod",
			want:    "replace t1 10.244.1.0/24 > i-1 from i-9\n conflict t1 10.244.1.0/24 > i-8",
			reason:  "takes packets from node a",
		},
		{
			name:    "a create waits for the delete that frees its next hop",
			desired: "- 10.244.2.0/24 > i-1 node=a\n - 10.244.3.0/24 > i-3 node=c",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod\n t1 10.244.4.0/24 > i-4 owner=prod",
			want: `delete t1 10.244.1.0/24 > i-1
				create t1 10.244.2.0/24 > i-1
				create t1 10.244.3.0/24 > i-3
				delete t1 10.244.4.0/24 > i-4`,
		},
		{
			name:    "a chain of moved ranges starts at its free end",
			desired: "- 10.244.1.0/24 > i-2 node=b\n - 10.244.2.0/24 > i-3 node=c\n - 10.244.5.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod\n t1 10.244.2.0/24 > i-2 owner=prod",
			want: `replace t1 10.244.2.0/24 > i-3 from i-2
				replace t1 10.244.1.0/24 > i-2 from i-1
				create t1 10.244.5.0/24 > i-1`,
		},
		{
			name:    "two nodes that swapped ranges are two replaces",
			desired: "- 10.244.1.0/24 > i-2 node=b\n - 10.244.2.0/24 > i-1 node=a",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod\n t1 10.244.2.0/24 > i-2 owner=prod",
			want:    "replace t1 10.244.2.0/24 > i-1 from i-2\n replace t1 10.244.1.0/24 > i-2 from i-1",
		},
		{
			name:    "in a full table deletes come first, R070",
			desired: "- 10.244.5.0/24 > i-5 node=e\n - 10.244.6.0/24 > i-6 node=f",
			actual:  "t1 10.244.1.0/24 > i-1 owner=prod\n t2 10.244.1.0/24 > i-1 owner=prod",
			rules:   with(func(r *Rules) { r.Tables = []string{"t1", "t2"}; r.Room = map[string]int{"t1": 1, "t2": 2} }),
			want: `delete t1 10.244.1.0/24 > i-1
				create t1 10.244.5.0/24 > i-5
				create t1 10.244.6.0/24 > i-6
				create t2 10.244.5.0/24 > i-5
				create t2 10.244.6.0/24 > i-6
				delete t2 10.244.1.0/24 > i-1`,
		},
		{
			name:   "an empty desired list deletes no more than three of a few, R093",
			actual: ourRoutes(10),
			want: `delete t1 10.244.1.0/24 > i-1
				delete t1 10.244.2.0/24 > i-2
				delete t1 10.244.3.0/24 > i-3
				held delete t1 10.244.4.0/24 > i-4
				held delete t1 10.244.5.0/24 > i-5
				held delete t1 10.244.6.0/24 > i-6
				held delete t1 10.244.7.0/24 > i-7
				held delete t1 10.244.8.0/24 > i-8
				held delete t1 10.244.9.0/24 > i-9
				held delete t1 10.244.10.0/24 > i-10`,
		},
		{
			name:    "the brake lets through first what others wait for and what cannot hurt",
			desired: "- 10.244.9.0/24 > i-9 node=n9\n - 10.244.20.0/24 > i-3 node=n20",
			actual: `t1 10.244.1.0/24 > i-1 owner=prod
				t1 10.244.3.0/24 > i-3 owner=prod
				t1 10.244.4.0/24 > i-4 owner=prod blackhole
				t1 10.244.9.0/24 > i-9 owner=prod
				t1 10.244.9.0/24 > i-8 owner=prod`,
			want: `delete t1 10.244.3.0/24 > i-3
				create t1 10.244.20.0/24 > i-3
				delete t1 10.244.4.0/24 > i-4
				delete t1 10.244.9.0/24 > i-8
				held delete t1 10.244.1.0/24 > i-1`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := tt.rules
			if rules.Tables == nil && rules.Ranges == nil {
				rules = testRules
			}
			got := Plan(parseRoutes(t, tt.desired), parseRoutes(t, tt.actual), rules)
			if d := cmp.Diff(lines(tt.want), lines(diffText(got))); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			checkReasons(t, got, tt.reason)
		})
	}
}

// ourRoutes are n routes of ours, one per node.
func ourRoutes(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "t1 10.244.%d.0/24 > i-%d owner=prod\n", i, i)
	}
	return b.String()
}

// checkReasons wants a reason in everything, and part in one of them.
func checkReasons(t testing.TB, d Diff, part string) {
	t.Helper()
	var reasons []string
	for _, c := range slices.Concat(d.Changes, d.Held) {
		reasons = append(reasons, c.Reason)
	}
	for _, c := range d.Conflicts {
		reasons = append(reasons, c.Reason)
	}
	if slices.Contains(reasons, "") {
		t.Errorf("something has no reason: %+v", d)
	}
	if part != "" && !strings.Contains(strings.Join(reasons, "\n"), part) {
		t.Errorf("no reason says %q:\n%s", part, strings.Join(reasons, "\n"))
	}
}

func TestPlanBrake(t *testing.T) {
	for _, tt := range []struct {
		name             string
		ours, maxDeletes int
		want             int
	}{
		{"a fifth of many", 100, 0, 20},
		{"a fifth is rounded down", 99, 0, 19},
		{"three of a few", 5, 0, 3},
		{"no more than there are", 2, 0, 2},
		{"a number as given", 100, 7, 7},
		{"lifted", 100, -1, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := with(func(r *Rules) { r.MaxDeletes = tt.maxDeletes })
			got := Plan(nil, parseRoutes(t, ourRoutes(tt.ours)), rules)
			if len(got.Changes) != tt.want || len(got.Held) != tt.ours-tt.want {
				t.Errorf("%d deleted and %d held, want %d of %d deleted", len(got.Changes), len(got.Held), tt.want, tt.ours)
			}
		})
	}
}

func TestPlanReplacesAreNotBraked(t *testing.T) {
	var desired []Route
	for i := 1; i <= 50; i++ {
		desired = append(desired, parseRoute(t, fmt.Sprintf("- 10.244.%d.0/24 > j-%d node=n%d", i, i, i)))
	}
	got := Plan(desired, parseRoutes(t, ourRoutes(50)), with(func(r *Rules) { r.MaxDeletes = 1 }))
	if len(got.Changes) != 50 || len(got.Held) != 0 {
		t.Errorf("%d changes and %d held, want 50 replaces", len(got.Changes), len(got.Held))
	}
}

// A wanted route is complete: it names its table, carries our mark for the
// comparison with what is read back, and the node for messages. A delete
// carries the handle under which the entry was listed.
func TestPlanFillsInRoutes(t *testing.T) {
	got := Plan(
		parseRoutes(t, "t7 10.244.1.0/24 > i-1 node=a owner=else id=x\n - 10.244.2.0/24 > i-2 node=b"),
		parseRoutes(t, "t1 10.244.2.0/24 > i-8 owner=prod id=two\n t1 10.244.3.0/24 > i-3 owner=prod id=three"), testRules)
	var routes []Route
	for _, c := range got.Changes {
		routes = append(routes, c.Route, c.Old)
	}
	want := parseRoutes(t, `t1 10.244.2.0/24 > i-2 node=b owner=prod
		t1 10.244.2.0/24 > i-8 owner=prod id=two
		t1 10.244.1.0/24 > i-1 node=a owner=prod
		- - > -
		t1 10.244.3.0/24 > i-3 owner=prod id=three
		- - > -`)
	if d := cmp.Diff(want, routes, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("routes and old routes (-want +got):\n%s", d)
	}
}
