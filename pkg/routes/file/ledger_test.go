package file

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

func entry(i int) routes.Entry {
	return routes.Entry{
		Node: fmt.Sprintf("n%d", i), UID: fmt.Sprintf("uid-%d", i), Table: "rtb-1",
		Destination: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)),
		NextHop:     vpc.NextHop(fmt.Sprintf("172.31.0.%d", i)),
	}
}

func open(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := Open(path, "prod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func holds(t *testing.T, l *Ledger, want ...routes.Entry) {
	t.Helper()
	got, err := l.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("ledger (-want +got)\n%s", diff)
	}
}

func done(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestLedgerOutlivesItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := open(t, path)
	holds(t, l)
	moved := entry(1)
	moved.NextHop, moved.Previous = "172.31.0.77", []vpc.NextHop{"172.31.0.1"}
	done(t, l.Record(t.Context(), []routes.Entry{entry(1), entry(2), entry(3)}))
	done(t, l.Record(t.Context(), []routes.Entry{moved}))
	done(t, l.Forget(t.Context(), []routes.Entry{entry(2), entry(9)}))
	holds(t, l, moved, entry(3))

	peeked, err := Peek(path, "prod")
	if err != nil {
		t.Fatal(err)
	}
	holds(t, peeked, moved, entry(3))
	if err := errors.Join(peeked.Record(t.Context(), []routes.Entry{entry(4)})...); err == nil {
		t.Error("a ledger opened for reading takes changes")
	}

	if _, err := Open(path, "prod"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("two writers: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, open(t, path), moved, entry(3))
}

// However far a write came before the process was killed, the ledger opens and
// holds every entry that was durable.
func TestLedgerSurvivesBeingCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := open(t, path)
	done(t, l.Record(t.Context(), []routes.Entry{entry(1), entry(2)}))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	done(t, l.Record(t.Context(), []routes.Entry{entry(3)}))
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for n := len(before); n <= len(after); n++ {
		cut := filepath.Join(t.TempDir(), "ledger")
		if err := os.WriteFile(cut, after[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, cut)
		want := []routes.Entry{entry(1), entry(2)}
		if n == len(after) {
			want = append(want, entry(3))
		}
		holds(t, l, want...)
		done(t, l.Record(t.Context(), []routes.Entry{entry(4)}))
		l.Close()
		holds(t, open(t, cut), append(want, entry(4))...)
	}
}

func TestLedgerRefusesWhatItCannotTrust(t *testing.T) {
	good := `{"vpcrouteLedger":1,"owner":"prod"}` + "\n"
	line := `{"node":"a","table":"rtb-1","destination":"10.244.1.0/24","nextHop":"x"}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"another cluster's": {strings.Replace(good, "prod", "test", 1) + line, `owner is "test", want "prod"`},
		"another release's": {strings.Replace(good, ":1", ":9", 1) + line, "vpcrouteLedger is 9"},
		"no ledger":         {"hello\nworld\n", "line 1"},
		"damaged":           {good + "\x00\x00\x00\n" + line, "line 2"},
		"no node":           {good + line + strings.Replace(line, `"a"`, `""`, 1), "line 3"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, "prod")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, c.want)
			}
			kept, err := os.ReadFile(path)
			if err != nil || string(kept) != c.text {
				t.Errorf("the file was changed: %q, %v", kept, err)
			}
		})
	}
}

func TestLedgerStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := open(t, path)
	for range slack + 10 {
		done(t, l.Record(t.Context(), []routes.Entry{entry(1)}))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > slack/2 {
		t.Errorf("%d lines for one entry", lines)
	}
	l.Close()
	holds(t, open(t, path), entry(1))
}

// A disk that takes no more is an error for the entry, and nothing of what was
// durable is lost.
func TestLedgerOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger")
	l := open(t, path)
	done(t, l.Record(t.Context(), []routes.Entry{entry(1)}))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.journal.Close()
	l.journal = full
	errs := l.Record(t.Context(), []routes.Entry{entry(2), entry(3)})
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a full disk: %v", err)
		}
	}
	holds(t, l, entry(1))
	done(t, l.Record(t.Context(), []routes.Entry{entry(4)})) // there is room again
	l.Close()
	holds(t, open(t, path), entry(1), entry(4))
}
