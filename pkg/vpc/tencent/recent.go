package tencent

import (
	"sync"
	"time"
)

const (
	// viewLifetime is how long what a table looked like serves questions that
	// age does not spoil, such as which subnets use it.
	viewLifetime = time.Minute
	// pairLifetime is how soon after Limits a List may use what Limits read: a
	// controller asks for both, and one reading answers both.
	pairLifetime = time.Second
	// momentAgo is how fresh a look at a table has to be for a create.
	momentAgo = 2 * time.Second
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
