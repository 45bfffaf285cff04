package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The times of the Lease. A leader writes only until trusted after its last
// renewal; a candidate waits for duration after the last one it saw. The time
// between is for calls of the deposed leader that were under way.
const (
	leaseDuration = 15 * time.Second
	leaseTrusted  = 10 * time.Second
	leaseRenewal  = 2 * time.Second
)

// ErrDeposed is the error of a write after leadership was lost.
var ErrDeposed = errors.New("this controller does not lead any more, so it writes nothing")

// leases is the part of the API that a Leader needs.
type leases interface {
	get(ctx context.Context) (*coordinationv1.Lease, error)
	create(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
	update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// A Leader holds, or waits for, the Lease that lets one controller write.
type Leader struct {
	leases leases
	// Identity names this process among the candidates.
	Identity string
	// Waits, when set, is told why the Lease cannot be had, once for each cause.
	Waits func(error)

	mu      sync.Mutex
	renewed time.Time // start of the last good renewal; zero when not leading
}

// Leader makes a candidate for a Lease.
func (c *Client) Leader(namespace, name, identity string) *Leader {
	return &Leader{leases: &leaseClient{c, namespace, name}, Identity: identity}
}

// Leads is nil while this process may write.
func (l *Leader) Leads() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() || time.Since(l.renewed) >= leaseTrusted {
		return ErrDeposed
	}
	return nil
}

// leaseGuard is how long before the Lease can become another's a write that is
// still under way is broken off.
const leaseGuard = time.Second

// leaseLook is how often a write under way looks whether it may go on.
const leaseLook = 250 * time.Millisecond

// Bound limits a write to the time in which nobody else can lead. It ends the
// context with ErrDeposed when the Lease was not renewed in time, also in a
// process that was stopped meanwhile: its first act is then to notice.
func (l *Leader) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			// Often, since the Lease may be seen to be another's before it expires.
			timer := time.NewTimer(min(time.Until(l.expiry()), leaseLook))
			select {
			case <-bounded.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if !time.Now().Before(l.expiry()) {
				cancel(ErrDeposed)
				return
			}
		}
	}()
	return bounded, func() { cancel(nil) }
}

// expiry is when every write has to be over unless the Lease is renewed.
func (l *Leader) expiry() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed.Add(leaseDuration - leaseGuard)
}

func (l *Leader) setRenewed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = at
}

// Lead waits for the Lease, runs work while it holds it, and gives it back when
// work has ended. The context of work ends when the Lease is lost; Lead then
// returns ErrDeposed.
func (l *Leader) Lead(ctx context.Context, work func(ctx context.Context) error) error {
	held, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	leading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- work(leading) }()
	ticker := time.NewTicker(leaseRenewal)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			l.setRenewed(time.Time{})
			l.release(held)
			return err
		case <-ticker.C:
		}
		held = l.renew(held)
		if l.Leads() != nil {
			cancel(ErrDeposed)
			return errors.Join(ErrDeposed, <-ended)
		}
	}
}

// acquire waits until the Lease is this process's.
func (l *Leader) acquire(ctx context.Context) (*coordinationv1.Lease, error) {
	var seen string // the last holder's last renewal
	var since time.Time
	var told string
	for {
		lease, err := l.leases.get(ctx)
		began := time.Now()
		switch {
		case apierrors.IsNotFound(err):
			lease, err = l.leases.create(ctx, l.claim(nil, began))
		case err == nil:
			if version := lease.ResourceVersion; version != seen {
				seen, since = version, began
			}
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" && time.Since(since) < leaseDuration {
				err = fmt.Errorf("held by %s", *holder)
				break
			}
			lease, err = l.leases.update(ctx, l.claim(lease, began))
		}
		if err == nil {
			l.setRenewed(began)
			return lease, nil
		}
		if l.Waits != nil && err.Error() != told {
			told = err.Error()
			l.Waits(err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(leaseRenewal):
		}
	}
}

// claim is the Lease with this process as its holder.
func (l *Leader) claim(lease *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	claimed := &coordinationv1.Lease{}
	if lease != nil {
		claimed = lease.DeepCopy()
	}
	seconds, moment := int32(leaseDuration/time.Second), metav1.NewMicroTime(now)
	if h := claimed.Spec.HolderIdentity; h == nil || *h != l.Identity {
		claimed.Spec.AcquireTime = &moment
	}
	claimed.Spec.HolderIdentity = &l.Identity
	claimed.Spec.LeaseDurationSeconds = &seconds
	claimed.Spec.RenewTime = &moment
	return claimed
}

// renew prolongs the Lease. A failure shows in Leads, in time. One that somebody
// else wrote to is not ours any more.
func (l *Leader) renew(held *coordinationv1.Lease) *coordinationv1.Lease {
	ctx, cancel := context.WithTimeout(context.Background(), leaseRenewal)
	defer cancel()
	began := time.Now()
	renewed, err := l.leases.update(ctx, l.claim(held, began))
	switch {
	case err == nil:
		l.setRenewed(began)
		return renewed
	case apierrors.IsConflict(err):
		// It may have been our own update whose answer was lost.
		current, err := l.leases.get(ctx)
		if err == nil && current.Spec.HolderIdentity != nil && *current.Spec.HolderIdentity == l.Identity {
			return current
		}
		if err == nil {
			l.setRenewed(time.Time{})
		}
	case apierrors.IsNotFound(err):
		// Deleted by hand: made again, unless somebody was faster.
		if made, err := l.leases.create(ctx, l.claim(nil, began)); err == nil {
			l.setRenewed(began)
			return made
		}
		l.setRenewed(time.Time{})
	}
	return held
}

// release lets the next candidate in at once.
func (l *Leader) release(held *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseRenewal)
	defer cancel()
	free := held.DeepCopy()
	nobody := ""
	free.Spec.HolderIdentity = &nobody
	// If it fails the next one waits for the Lease to run out.
	_, _ = l.leases.update(ctx, free)
}

type leaseClient struct {
	c               *Client
	namespace, name string
}

func (l *leaseClient) get(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, l.c.coordination.Get().Namespace(l.namespace).Resource("leases").Name(l.name).Timeout(callTimeout).Do(ctx).Into(lease)
}

func (l *leaseClient) create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease.Namespace, lease.Name = l.namespace, l.name
	made := &coordinationv1.Lease{}
	return made, l.c.coordination.Post().Namespace(l.namespace).Resource("leases").Timeout(callTimeout).Body(lease).Do(ctx).Into(made)
}

func (l *leaseClient) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	updated := &coordinationv1.Lease{}
	return updated, l.c.coordination.Put().Namespace(l.namespace).Resource("leases").Name(l.name).Timeout(callTimeout).Body(lease).Do(ctx).Into(updated)
}
