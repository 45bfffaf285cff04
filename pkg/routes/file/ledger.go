package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Ledger is a routes.Ledger in a file: a journal of JSON lines, each synced
// to disk before the cloud is asked. A line that a crash cut short was never
// acted on and is dropped.
type Ledger struct {
	path  string
	owner string
	lock  *os.File // held while the process may write; nil for reading only

	mu      sync.Mutex
	journal *os.File
	lines   int
	entries map[key]routes.Entry
}

type key struct {
	node, table string
	destination netip.Prefix
}

func keyOf(e routes.Entry) key { return key{e.Node, e.Table, e.Destination} }

// header is the first line of the file.
type header struct {
	Version int    `json:"vpcrouteLedger"`
	Owner   string `json:"owner"`
}

// line is every other line. An entry with Forget ends the one before it.
type line struct {
	Forget      bool          `json:"forget,omitempty"`
	Node        string        `json:"node"`
	UID         string        `json:"uid,omitempty"`
	Table       string        `json:"table"`
	Destination netip.Prefix  `json:"destination"`
	NextHop     vpc.NextHop   `json:"nextHop,omitempty"`
	Previous    []vpc.NextHop `json:"previousNextHops,omitempty"`
}

const (
	version = 1
	// slack is how many lines beyond twice the entries the journal may have
	// before it is written afresh.
	slack = 1000
)

// Open opens the ledger of an owner, or makes it, and keeps every other process
// from writing to it until Close.
func Open(path, owner string) (*Ledger, error) {
	l := &Ledger{path: path, owner: owner, entries: map[key]routes.Entry{}}
	if err := l.seize(); err != nil {
		return nil, err
	}
	err := l.read()
	if err == nil {
		err = l.rewrite()
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Peek reads the ledger of an owner without making or locking it; the result
// takes no changes. A file that is not there is an empty ledger.
func Peek(path, owner string) (*Ledger, error) {
	l := &Ledger{path: path, owner: owner, entries: map[key]routes.Entry{}}
	return l, l.read()
}

func (l *Ledger) seize() error {
	lock, err := os.OpenFile(l.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return fmt.Errorf("ledger %s is in use by another process: end that controller first (%w)", l.path, err)
	}
	l.lock = lock
	return nil
}

// Close gives the file free.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range []*os.File{l.journal, l.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	l.journal, l.lock = nil, nil
	return errors.Join(errs...)
}

// read reads the whole file.
func (l *Ledger) read() error {
	text, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	rows := bytes.Split(text, []byte("\n"))
	rows = rows[:len(rows)-1] // "" after the last line end, or what a crash cut short
	for i, row := range rows {
		take := l.takeLine
		if i == 0 {
			take = l.takeHeader
		}
		if err := take(row); err != nil {
			return fmt.Errorf("ledger %s, line %d: %w; without a ledger, routes that the cloud cannot mark count as foreign: restore the file, or move it away to accept that", l.path, i+1, err)
		}
	}
	return nil
}

func (l *Ledger) takeHeader(row []byte) error {
	var h header
	if err := json.Unmarshal(row, &h); err != nil {
		return err
	}
	switch {
	case h.Version != version:
		return fmt.Errorf("vpcrouteLedger is %d, want %d: it is not a ledger, or that of another release", h.Version, version)
	case h.Owner != l.owner:
		return fmt.Errorf("owner is %q, want %q: it is the ledger of another cluster", h.Owner, l.owner)
	}
	return nil
}

func (l *Ledger) takeLine(row []byte) error {
	var r line
	if err := json.Unmarshal(row, &r); err != nil {
		return err
	}
	if r.Node == "" || r.Table == "" || !r.Destination.IsValid() {
		return fmt.Errorf("node, table and destination are needed: %s", row)
	}
	e := routes.Entry{Node: r.Node, UID: r.UID, Table: r.Table, Destination: r.Destination, NextHop: r.NextHop, Previous: r.Previous}
	l.lines++
	if r.Forget {
		delete(l.entries, keyOf(e))
	} else {
		l.entries[keyOf(e)] = e
	}
	return nil
}

// Load returns every entry.
func (l *Ledger) Load(context.Context) ([]routes.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sorted(), nil
}

func (l *Ledger) sorted() []routes.Entry {
	var entries []routes.Entry
	for _, e := range l.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b routes.Entry) int {
		if c := a.Destination.Compare(b.Destination); c != 0 {
			return c
		}
		return bytes.Compare([]byte(a.Table+"\x00"+a.Node), []byte(b.Table+"\x00"+b.Node))
	})
	return entries
}

// Record makes entries durable; all of them with one write.
func (l *Ledger) Record(_ context.Context, entries []routes.Entry) []error {
	return l.change(entries, false)
}

// Forget removes entries; all of them with one write.
func (l *Ledger) Forget(_ context.Context, entries []routes.Entry) []error {
	return l.change(entries, true)
}

func (l *Ledger) change(entries []routes.Entry, forget bool) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := make([]error, len(entries))
	err := l.append(entries, forget)
	for i, e := range entries {
		switch {
		case err != nil:
			errs[i] = fmt.Errorf("ledger %s: %w", l.path, err)
		case forget:
			delete(l.entries, keyOf(e))
		default:
			l.entries[keyOf(e)] = e
		}
	}
	if err == nil && l.lines > 2*len(l.entries)+slack {
		// The journal is whole; that it could not be shortened harms nothing.
		_ = l.rewrite()
	}
	return errs
}

// append writes lines and has them on disk when it returns nil. After a failure
// the journal is written afresh, since nobody knows what of it arrived.
func (l *Ledger) append(entries []routes.Entry, forget bool) error {
	if l.lock == nil {
		return errors.New("it was opened for reading")
	}
	if l.journal == nil {
		if err := l.rewrite(); err != nil {
			return err
		}
	}
	text, err := encode(entries, forget)
	if err != nil {
		return err
	}
	if _, err = l.journal.Write(text); err == nil {
		err = l.journal.Sync()
	}
	if err != nil {
		_ = l.journal.Close()
		l.journal = nil
		return err
	}
	l.lines += len(entries)
	return nil
}

func encode(entries []routes.Entry, forget bool) ([]byte, error) {
	var text []byte
	for _, e := range entries {
		row, err := json.Marshal(line{forget, e.Node, e.UID, e.Table, e.Destination, e.NextHop, e.Previous})
		if err != nil {
			return nil, err
		}
		text = append(append(text, row...), '\n')
	}
	return text, nil
}

// rewrite replaces the file by one with a line per entry, and opens it for more.
func (l *Ledger) rewrite() (err error) {
	text, err := json.Marshal(header{version, l.owner})
	if err != nil {
		return err
	}
	rows, err := encode(l.sorted(), false)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(l.path), filepath.Base(l.path)+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(slices.Concat(text, []byte("\n"), rows)); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), l.path); err != nil {
		return err
	}
	if l.journal != nil {
		_ = l.journal.Close() // it is a file without a name now
		l.journal = nil
	}
	if err = syncDirectory(filepath.Dir(l.path)); err != nil {
		return err
	}
	l.journal, l.lines = f, len(l.entries)
	return nil
}

// syncDirectory makes a rename durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
