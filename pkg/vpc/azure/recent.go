package azure

import (
	"sync"
	"time"
)

const (
	// viewLifetime is how long what a table looked like serves the question which
	// subnets use it.
	viewLifetime = time.Minute
	// pairLifetime is how soon after Limits a List may use what Limits read: a
	// controller asks for both, and one reading answers both.
	pairLifetime = time.Second
	// knownLifetime is how long interfaces and networks are taken for known.
	knownLifetime = 5 * time.Minute
	// doubtLifetime is how soon what was not found, or was not as it should be,
	// is looked at again.
	doubtLifetime = 30 * time.Second
	// newcomerLifetime is the same for a node that is asked for the first time, so
	// that many of them share a look.
	newcomerLifetime = time.Second
)

// A recent is the last known value of something and when it was learnt.
type recent[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // zero: nothing is known
}

func (r *recent[T]) put(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.at = v, time.Now()
}

// get returns the value if it is younger than age.
func (r *recent[T]) get(age time.Duration) (v T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, !r.at.IsZero() && time.Since(r.at) < age
}

// take is get for one user: the value is forgotten.
func (r *recent[T]) take(age time.Duration) (v T, ok bool) {
	v, ok = r.get(age)
	r.forget()
	return v, ok
}

func (r *recent[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var none T
	r.value, r.at = none, time.Time{}
}

// A shelf keeps values that are read by a key, one reading of a key at a time.
type shelf[T any] struct {
	mu    sync.Mutex
	items map[string]*item[T]
}

type item[T any] struct {
	recent[T]
	fetch sync.Mutex
}

func (s *shelf[T]) item(key string) *item[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = map[string]*item[T]{}
	}
	if s.items[key] == nil {
		s.items[key] = &item[T]{}
	}
	return s.items[key]
}

// get returns the value of a key, read no longer than age ago.
func (s *shelf[T]) get(key string, age time.Duration, read func() (T, error)) (T, error) {
	i := s.item(key)
	i.fetch.Lock()
	defer i.fetch.Unlock()
	if v, ok := i.recent.get(age); ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		i.put(v)
	}
	return v, err
}
