package aws

import (
	"sync"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
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

// moments are when something was last done to interfaces.
type moments map[vpc.NextHop]time.Time

func (m moments) within(id vpc.NextHop, age time.Duration) bool {
	at, known := m[id]
	return known && time.Since(at) < age
}
