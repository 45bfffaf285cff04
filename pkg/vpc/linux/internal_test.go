package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestVRFTable(t *testing.T) {
	named := netlink.LinkAttrs{Name: "red"}
	for _, tt := range []struct {
		name  string
		link  netlink.Link
		want  uint32
		class vpc.Class
	}{
		{name: "VRF", link: &netlink.Vrf{LinkAttrs: named, Table: 1000}, want: 1000},
		{name: "VRF without a table", link: &netlink.Vrf{LinkAttrs: named}, class: vpc.Invalid},
		{name: "another kind of device", link: &netlink.Bridge{LinkAttrs: named}, class: vpc.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := vrfTable(tt.link)
			if got != tt.want || (err != nil) != (tt.want == 0) {
				t.Errorf("table %d, error %v, want table %d", got, err, tt.want)
			}
			if err != nil && vpc.ClassOf(err) != tt.class {
				t.Errorf("class %v, want %v", vpc.ClassOf(err), tt.class)
			}
		})
	}
}

func TestVRFThatIsNotThere(t *testing.T) {
	ns := sandbox.New(t, "vpc")
	table, err := New(Config{Namespace: ns.Path(), VRF: "red", Protocol: DefaultProtocol, Owner: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.List(t.Context()); err == nil || vpc.ClassOf(err) != vpc.NotFound {
		t.Errorf("error %v, want NotFound", err)
	}
}

func TestRuleLeadsTo(t *testing.T) {
	rule := func(table uint8, action uint8, attrs ...nl.NetlinkRequestData) []byte {
		m := (&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Table: table, Type: action}}).Serialize()
		m = append([]byte(nil), m...)
		for _, a := range attrs {
			m = append(m, a.Serialize()...)
		}
		return m
	}
	for _, tt := range []struct {
		name string
		rule []byte
		vrf  bool
		want bool
	}{
		{"by attribute", rule(unix.RT_TABLE_COMPAT, unix.FR_ACT_TO_TBL, number(unix.FRA_TABLE, 1000)), false, true},
		{"by header", rule(232, unix.FR_ACT_TO_TBL), false, false},
		{"another table", rule(unix.RT_TABLE_COMPAT, unix.FR_ACT_TO_TBL, number(unix.FRA_TABLE, 1001)), false, false},
		{"an action other than a look-up", rule(unix.RT_TABLE_COMPAT, unix.FR_ACT_UNREACHABLE, number(unix.FRA_TABLE, 1000)), false, false},
		{"all VRFs, and the table is one's", rule(0, unix.FR_ACT_TO_TBL, nl.NewRtAttr(unix.FRA_L3MDEV, nl.Uint8Attr(1))), true, true},
		{"all VRFs, and the table is none's", rule(0, unix.FR_ACT_TO_TBL, nl.NewRtAttr(unix.FRA_L3MDEV, nl.Uint8Attr(1))), false, false},
		{"half a message", []byte{unix.AF_INET, 0}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := leadsTo(tt.rule, 1000, tt.vrf); got != tt.want {
				t.Errorf("leadsTo = %v, want %v", got, tt.want)
			}
		})
	}
	if !leadsTo(rule(254, unix.FR_ACT_TO_TBL), 254, false) {
		t.Error("a table in the header alone is not seen")
	}
}

func TestUninterrupted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []error // of each dump; then nil
		dumps   int
		fails   bool
	}{
		{"first time right", nil, 1, false},
		{"interrupted twice", []error{nl.ErrDumpInterrupted, fmt.Errorf("x: %w", nl.ErrDumpInterrupted)}, 3, false},
		{"a signal", []error{unix.EINTR}, 2, false},
		{"another error is not tried again", []error{unix.EPERM}, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dumps := 0
			err := uninterrupted(func() error {
				dumps++
				if dumps <= len(tt.answers) {
					return tt.answers[dumps-1]
				}
				return nil
			})
			if dumps != tt.dumps || (err != nil) != tt.fails {
				t.Errorf("%d dumps, error %v, want %d", dumps, err, tt.dumps)
			}
		})
	}
	dumps := 0
	err := uninterrupted(func() error { dumps++; return nl.ErrDumpInterrupted })
	if dumps != maxDumps || !errors.Is(err, nl.ErrDumpInterrupted) || vpc.ClassOf(failure("x", err)) != vpc.Transient {
		t.Errorf("always interrupted: %d dumps, error %v, want %d and a Transient error", dumps, err, maxDumps)
	}
}

func TestClassOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want vpc.Class
	}{
		{unix.EEXIST, vpc.Exists},
		{unix.ESRCH, vpc.NotFound},
		{unix.ENODEV, vpc.NotFound},
		{unix.ENETUNREACH, vpc.NotFound},
		{unix.EHOSTUNREACH, vpc.NotFound},
		{os.ErrNotExist, vpc.NotFound},
		{netlink.LinkNotFoundError{}, vpc.NotFound},
		{unix.EPERM, vpc.Denied},
		{unix.EINVAL, vpc.Invalid},
		{unix.EAFNOSUPPORT, vpc.Invalid},
		{unix.ENOMEM, vpc.Quota},
		{unix.ENETDOWN, vpc.Transient},
		{unix.EAGAIN, vpc.Transient},
		{unix.ENOBUFS, vpc.Transient},
		{context.DeadlineExceeded, vpc.Transient},
		{context.Canceled, vpc.Transient},
		{errors.New("anything else"), vpc.Transient},
		{vpc.Errorf(vpc.Throttled, "as it is"), vpc.Throttled},
	} {
		err := failure("op", fmt.Errorf("wrapped: %w", tt.err))
		if got := vpc.ClassOf(err); got != tt.want {
			t.Errorf("%v: class %v, want %v", tt.err, got, tt.want)
		}
		if !errors.Is(err, tt.err) {
			t.Errorf("%v is lost in %v", tt.err, err)
		}
	}
	if failure("op", nil) != nil {
		t.Error("no error became one")
	}
}

// stale runs f with a writer that has read the table before the given commands
// changed it, as happens when two writers meet.
func stale(t *testing.T, f func(w *writer) error, commands ...[]string) error {
	t.Helper()
	ns := sandbox.New(t, "vpc")
	for _, args := range append([][]string{
		{"link", "add", "up0", "type", "veth", "peer", "name", "far0"},
		{"link", "set", "up0", "up"},
		{"link", "set", "far0", "up"},
		{"addr", "add", "192.168.7.1/24", "dev", "up0"},
		{"addr", "add", "fd00:7::1/64", "dev", "up0", "nodad"},
	}, commands...) {
		ns.Run(t, "ip", args...)
	}
	table, err := New(Config{Namespace: ns.Path(), Table: 100, Protocol: DefaultProtocol, Owner: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	return table.do(t.Context(), "test", func(c *conn, id uint32) error {
		return f(&writer{t: table, conn: c, table: id, found: map[netip.Prefix][]entry{}})
	})
}

// A create that loses a race is judged by what is there then, never by "exists".
func TestCreateReadsBackWhatExists(t *testing.T) {
	change := func(destination, hop string) func(w *writer) error {
		return func(w *writer) error {
			return w.apply(vpc.Change{Op: vpc.Create, Route: vpc.Route{
				Table: "100", Destination: netip.MustParsePrefix(destination), NextHop: vpc.NextHop(hop),
			}})
		}
	}
	for _, tt := range []struct {
		name             string
		there            []string
		destination, hop string
		fails            bool
	}{
		{"the wanted one", []string{"route", "add", "10.244.1.0/24", "via", "192.168.7.11", "proto", "201", "table", "100"}, "10.244.1.0/24", "192.168.7.11", false},
		{"the wanted one, IPv6", []string{"route", "add", "fd00:1::/64", "via", "fd00:7::11", "proto", "201", "table", "100"}, "fd00:1::/64", "fd00:7::11", false},
		{"ours to another node", []string{"route", "add", "10.244.1.0/24", "via", "192.168.7.12", "proto", "201", "table", "100"}, "10.244.1.0/24", "192.168.7.11", true},
		{"a stranger's to the same node", []string{"route", "add", "10.244.1.0/24", "via", "192.168.7.11", "proto", "static", "table", "100"}, "10.244.1.0/24", "192.168.7.11", true},
		{"a stranger's, IPv6", []string{"route", "add", "fd00:1::/64", "via", "fd00:7::12", "proto", "static", "table", "100"}, "fd00:1::/64", "fd00:7::11", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := stale(t, change(tt.destination, tt.hop), tt.there)
			if (err != nil) != tt.fails || err != nil && vpc.ClassOf(err) != vpc.Exists {
				t.Errorf("error %v, want one of class Exists: %v", err, tt.fails)
			}
		})
	}
}

// A stranger has added a path to our entry after we looked, and it is the one we
// want to replace ours by. The replace removes our own entry and leaves the
// stranger's, which does the work.
func TestReplaceReadsBackWhatExists(t *testing.T) {
	old := vpc.Route{Table: "100", Destination: netip.MustParsePrefix("fd00:1::/64"), NextHop: "fd00:7::11"}
	want := old
	want.NextHop = "fd00:7::12"
	err := stale(t, func(w *writer) error {
		if err := w.reread(); err != nil {
			return err
		}
		w.found[old.Destination] = w.found[old.Destination][:1]
		if err := w.apply(vpc.Change{Op: vpc.Replace, Route: want, Old: old}); err != nil {
			return err
		}
		left, err := w.conn.entries(w.table)
		if len(left) != 1 || left[0].gateway.String() != "fd00:7::12" || left[0].protocol != unix.RTPROT_STATIC {
			return fmt.Errorf("left are %+v, want the stranger's alone", left)
		}
		return err
	},
		[]string{"route", "add", "fd00:1::/64", "via", "fd00:7::11", "proto", "201", "table", "100"},
		[]string{"route", "append", "fd00:1::/64", "via", "fd00:7::12", "proto", "static", "table", "100"})
	if err != nil {
		t.Error(err)
	}
}

// The main thread stands for the process in /proc/self, so it must never be the
// one that visits another namespace. The test keeps every other thread busy, so
// that the runtime has only the main thread left to run inside on.
func TestInsideLeavesTheProcessWhereItIs(t *testing.T) {
	ns := sandbox.New(t, "vpc")
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	release := occupyAllThreadsButMain()
	defer release()
	for range 20 {
		err := inside(ns.Path(), func() error {
			if main, err := os.Readlink("/proc/self/ns/net"); err != nil || main != before {
				return fmt.Errorf("the process is in %s, was in %s (%v)", main, before, err)
			}
			if own, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || own == before {
				return fmt.Errorf("f is not inside: %s (%v)", own, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func occupyAllThreadsButMain() (release func()) {
	end, main := make(chan struct{}), make(chan bool, 1)
	for range 200 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if unix.Gettid() == unix.Getpid() {
				main <- true
				return
			}
			main <- false
			<-end
		}()
		if <-main {
			break
		}
	}
	return func() { close(end) }
}

func TestCallsLeaveNoFileOpen(t *testing.T) {
	ns := sandbox.New(t, "vpc")
	table, err := New(Config{Namespace: ns.Path(), Table: 100, Protocol: DefaultProtocol, Owner: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	before := open()
	for range 100 {
		if _, err := table.List(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after > before+20 {
		t.Errorf("%d files open after 100 calls, %d before", after, before)
	}
}

// An ending context ends after it was asked a number of times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestApplyStopsWhenItsContextEnds(t *testing.T) {
	ns := sandbox.New(t, "vpc")
	for _, args := range []string{"link add up0 type veth peer name far0", "link set up0 up", "link set far0 up", "addr add 192.168.7.1/24 dev up0"} {
		ns.Run(t, "ip", strings.Fields(args)...)
	}
	table, err := New(Config{Namespace: ns.Path(), Table: 100, Protocol: DefaultProtocol, Owner: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	var changes []vpc.Change
	for i := range 6 {
		changes = append(changes, vpc.Change{Op: vpc.Create, Route: vpc.Route{
			Table: "100", Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24), NextHop: "192.168.7.11",
		}})
	}
	errs := table.Apply(&ending{t.Context(), 4}, changes)
	routes, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for i, err := range errs {
		if err == nil {
			made++
		} else if !vpc.IsCancelled(err) || i < made {
			t.Errorf("change %d: %v, want the context's error, after all that were made", i, err)
		}
	}
	if made == 0 || made == len(changes) || len(routes) != made {
		t.Errorf("%d of %d routes made, %d there", made, len(changes), len(routes))
	}
}

// FuzzParseEntries: whatever a kernel sends, reading it ends in entries that are
// whole or say that they are not.
func FuzzParseEntries(f *testing.F) {
	message := func(h unix.RtMsg, attrs ...nl.NetlinkRequestData) []byte {
		m := append([]byte(nil), (&nl.RtMsg{RtMsg: h}).Serialize()...)
		for _, a := range attrs {
			m = append(m, a.Serialize()...)
		}
		return m
	}
	dst := func(s string) nl.NetlinkRequestData {
		return nl.NewRtAttr(unix.RTA_DST, netip.MustParseAddr(s).AsSlice())
	}
	v4 := unix.RtMsg{Family: unix.AF_INET, Dst_len: 24, Table: 100, Type: unix.RTN_UNICAST}
	v6 := unix.RtMsg{Family: unix.AF_INET6, Dst_len: 64, Table: 100, Type: unix.RTN_UNICAST}
	f.Add(message(v4, dst("10.244.1.0"), nl.NewRtAttr(unix.RTA_GATEWAY, []byte{10, 0, 0, 1})), false)
	f.Add(message(v4, dst("10.244.1.7")), false)
	f.Add(message(v4, dst("fd00::")), false)
	f.Add(message(v4, nl.NewRtAttr(unix.RTA_DST, nil)), false)
	f.Add(message(unix.RtMsg{Family: unix.AF_INET, Dst_len: 77, Table: 100}, dst("10.0.0.0")), false)
	f.Add(message(v6, dst("fd00:1::"), nl.NewRtAttr(unix.RTA_MULTIPATH, []byte{16, 0, 0, 0, 1, 0, 0, 0, 8, 0, 5, 0, 1, 2, 3, 4})), true)
	f.Add(message(v6, dst("fd00:1::"), nl.NewRtAttr(unix.RTA_MULTIPATH, []byte{9, 0, 0, 0, 1, 0, 0, 0, 1})), true)
	f.Add(append(message(v6), 3, 0, 9, 0), true)
	f.Add([]byte{unix.AF_INET6}, true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, m []byte, six bool) {
		family := vpc.IPv4
		if six {
			family = vpc.IPv6
		}
		for _, e := range parseEntries(m, family, 100) {
			if e.destination.IsValid() == (e.text != "") {
				t.Errorf("destination %v and text %q", e.destination, e.text)
			}
			if e.destination.IsValid() && (e.destination != e.destination.Masked() || vpc.FamilyOf(e.destination) != family) {
				t.Errorf("destination %v is not an %v range", e.destination, family)
			}
			if e.gateway.IsValid() && e.gateway.Is4() == six {
				t.Errorf("gateway %v is not of %v", e.gateway, family)
			}
			e.id()
			e.deletion()
		}
	})
}
