package tencent

import (
	"sync"
	"time"
)

// viewLifetime is how long an answer that was read for one purpose serves
// another.
const viewLifetime = time.Minute

// A recent is the last known value of something and when it was learnt.
type recent[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time
}

func (r *recent[T]) put(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.at = v, time.Now()
}

// get returns the value if it is no older than age.
func (r *recent[T]) get(age time.Duration) (v T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, !r.at.IsZero() && time.Since(r.at) <= age
}
