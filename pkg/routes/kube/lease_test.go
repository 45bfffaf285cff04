package kube

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A shared Lease with the API server's optimistic lock.
type sharedLease struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	down    bool
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (s *sharedLease) get(context.Context) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return nil, errors.New("connection refused")
	case s.lease == nil:
		return nil, apierrors.NewNotFound(leaseResource, "x")
	}
	return s.lease.DeepCopy(), nil
}

func (s *sharedLease) create(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return nil, errors.New("connection refused")
	case s.lease != nil:
		return nil, apierrors.NewAlreadyExists(leaseResource, "x")
	}
	return s.store(l), nil
}

func (s *sharedLease) update(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return nil, errors.New("connection refused")
	case s.lease == nil:
		return nil, apierrors.NewNotFound(leaseResource, "x")
	case l.ResourceVersion != s.lease.ResourceVersion:
		return nil, apierrors.NewConflict(leaseResource, "x", errors.New("stale"))
	}
	return s.store(l), nil
}

func (s *sharedLease) store(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
	return s.lease.DeepCopy()
}

// untilDone is work that goes on until it is told to end.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestLeadersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &sharedLease{}
		first := &Leader{leases: shared, Identity: "a"}
		second := &Leader{leases: shared, Identity: "b"}
		ctx, end := context.WithCancel(t.Context())
		go func() { _ = first.Lead(ctx, untilDone) }()
		time.Sleep(time.Minute)
		if err := first.Leads(); err != nil {
			t.Error(err)
		}
		other, endOther := context.WithCancel(t.Context())
		go func() { _ = second.Lead(other, untilDone) }()
		time.Sleep(time.Hour)
		if err := first.Leads(); err != nil {
			t.Errorf("the first lost the Lease: %v", err)
		}
		if second.Leads() == nil {
			t.Error("both lead")
		}
		end()
		time.Sleep(5 * time.Second) // a clean hand-over
		if second.Leads() != nil || first.Leads() == nil {
			t.Error("the second does not lead 5 s after the first ended")
		}
		endOther()
		synctest.Wait()
	})
}

// R080: whoever cannot renew stops before anybody else starts.
func TestDeposedLeaderStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &sharedLease{}
		first := &Leader{leases: shared, Identity: "a"}
		cut := &cutOff{leases: shared}
		first.leases = cut
		ended := make(chan error, 1)
		go func() { ended <- first.Lead(t.Context(), untilDone) }()
		time.Sleep(time.Minute)
		second := &Leader{leases: shared, Identity: "b"}
		ctx, end := context.WithCancel(t.Context())
		go func() { _ = second.Lead(ctx, untilDone) }()
		time.Sleep(10 * time.Second)
		cut.set(true)
		lost := time.Now()
		for time.Since(lost) < time.Minute {
			time.Sleep(100 * time.Millisecond)
			if first.Leads() == nil && second.Leads() == nil {
				t.Fatal("both lead")
			}
		}
		if second.Leads() != nil {
			t.Error("nobody took over within a minute")
		}
		if err := <-ended; !errors.Is(err, ErrDeposed) {
			t.Errorf("the first ended with %v", err)
		}
		end()
		synctest.Wait()
	})
}

// A cutOff loses its way to the API server.
type cutOff struct {
	leases
	mu  sync.Mutex
	cut bool
}

func (c *cutOff) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *cutOff) update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut {
		return nil, errors.New("no route to host")
	}
	return c.leases.update(ctx, l)
}

// R080: a process that slept past its Lease writes nothing when it wakes, even
// before it has noticed anything.
func TestNoWriteAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Leader{Identity: "a"}
		l.setRenewed(time.Now())
		fake := vpc.NewFake(vpc.FakeConfig{Owner: "prod"})
		table := FenceTable(fake, l)
		change := []vpc.Change{{Op: vpc.Create, Route: vpc.Route{Table: "rtb-1"}}}
		time.Sleep(leaseTrusted - 1)
		table.Apply(t.Context(), change)
		if n := fake.Count(vpc.OpApply); n != 1 {
			t.Errorf("%d writes while it leads, want 1", n)
		}
		time.Sleep(time.Nanosecond)
		if err := table.Apply(t.Context(), change)[0]; !errors.Is(err, ErrDeposed) {
			t.Errorf("a late write: %v", err)
		}
		if n := fake.Count(vpc.OpApply); n != 1 {
			t.Errorf("%d writes, want no more", n)
		}
	})
}

// A slowTable makes the changes of a call one after the other, as clouds without
// batches do.
type slowTable struct {
	vpc.RouteTable
	each time.Duration
}

func (s *slowTable) Apply(ctx context.Context, changes []vpc.Change) []error {
	errs := make([]error, len(changes))
	for i := range changes {
		select {
		case <-ctx.Done():
			errs[i] = context.Cause(ctx)
		case <-time.After(s.each):
			errs[i] = s.RouteTable.Apply(ctx, changes[i:i+1])[0]
		}
	}
	return errs
}

// R080: what passed the fence just before the Lease was lost is over before
// another process can lead; while the Lease is renewed a call may take its time.
func TestWritesUnderWayAreBrokenOff(t *testing.T) {
	for _, c := range []struct {
		situation string
		renewed   time.Duration // the time of the last renewal after the first
		want      int           // changes that are made, of 60 that take 1.1 s each
	}{
		{"never renewed", 0, 12},
		{"renewed for a while", 9 * time.Second, 20},
		{"renewed throughout", time.Hour, 60},
	} {
		t.Run(c.situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Leader{Identity: "a"}
				began := time.Now()
				l.setRenewed(began)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				go func() {
					for ctx.Err() == nil && time.Since(began) < c.renewed {
						if pause(ctx, 3*time.Second); time.Since(began) <= c.renewed {
							l.setRenewed(time.Now())
						}
					}
				}()
				fake := vpc.NewFake(vpc.FakeConfig{Owner: "prod"})
				table := FenceTable(&slowTable{fake, 1100 * time.Millisecond}, l)
				errs := table.Apply(t.Context(), make([]vpc.Change, 60))
				if n := fake.Count(vpc.OpApply); n != c.want {
					t.Errorf("%d changes were made, want %d", n, c.want)
				}
				if last := errs[len(errs)-1]; errors.Is(last, ErrDeposed) != (c.want < 60) {
					t.Errorf("the last one: %v", last)
				}
			})
		})
	}
}
