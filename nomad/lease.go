package nomad

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/nomad/api"
)

// The lease is a Variable that one controller holds at a time: who steers jobs writes its name there, and again while
// it goes on, by compare-and-set. Controllers of several namespaces share the nodes, so there is one lease for them
// all.
//
// When it was last written says as well since when nobody has attended to the jobs that wait.
const (
	leasePath      = "evenstep/controller"
	leaseNamespace = api.DefaultNamespace
	holderItem     = "holder"
	secondsItem    = "seconds"
)

// ErrHeld is of a controller while another one steers.
var ErrHeld = errors.New("another controller steers")

// lease is what is known of the lease.
type lease struct {
	me      string    // what we write; empty before the first time
	written time.Time // by us, last
	// From unattended to attended nobody steered; both are zero where somebody always did.
	unattended, attended time.Time
	hidden               error // why who only looks may not know any of it; nil in general
}

// attend takes the lease or keeps it; who only looks finds out who has it.
func (s *Scheduler) attend(ctx context.Context) error {
	l := &s.lease
	if l.me == "" {
		host, _ := os.Hostname()
		l.me = fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:8])
	}
	now := time.Now()
	if !l.written.IsZero() && now.Sub(l.written) < s.LeaseTime/3 {
		return nil
	}
	v, err := s.variable(ctx, leaseNamespace, leasePath)
	if !s.Steer && refused(err, http.StatusForbidden) {
		l.hidden = err
		return nil
	}
	if err != nil {
		return err
	}
	written := time.Time{}
	if v.ModifyTime > 0 {
		written = time.Unix(0, v.ModifyTime)
	}
	lasts, _ := time.ParseDuration(v.Items[secondsItem] + "s")
	active := v.Items[holderItem] != "" && now.Sub(written) < lasts
	// What we hold may have been deleted: that is no absence.
	if !active && now.Sub(l.written) >= s.LeaseTime {
		l.unattended, l.attended = written, now
	}
	if !s.Steer {
		if active {
			l.unattended, l.attended = time.Time{}, time.Time{}
		}
		return nil
	}
	if active && v.Items[holderItem] != l.me {
		l.written = time.Time{}
		return fmt.Errorf("%w: %s", ErrHeld, v.Items[holderItem])
	}
	if err := s.writeLease(ctx, v, l.me); err != nil {
		l.written = time.Time{}
		return err
	}
	l.written = now
	return nil
}

func (s *Scheduler) writeLease(ctx context.Context, v *api.Variable, holder string) error {
	v.Items = api.VariableItems{holderItem: holder, secondsItem: fmt.Sprint(s.LeaseTime.Seconds())}
	path := fmt.Sprintf("/v1/var/%s?cas=%d", leasePath, v.ModifyIndex)
	err := s.write(ctx, path, leaseNamespace, v, nil)
	if refused(err, 409) {
		return fmt.Errorf("%w: it took the lease this moment", ErrHeld)
	}
	return err
}

// mayApply says why updates may not be applied: the lease was not kept.
func (s *Scheduler) mayApply() error {
	if s.Steer && time.Since(s.lease.written) > s.LeaseTime {
		return fmt.Errorf("%w: our lease ran out", ErrHeld)
	}
	return nil
}

// Close gives the lease back, so that another controller need not wait for its end.
func (s *Scheduler) Close(ctx context.Context) error {
	if !s.Steer {
		return nil
	}
	// Whether it is ours says what is written: a controller may be told to end while it renews it.
	v, err := s.variable(ctx, leaseNamespace, leasePath)
	if err != nil || v.Items[holderItem] != s.lease.me {
		return err
	}
	s.lease.written = time.Time{}
	return s.writeLease(ctx, v, "")
}

// abandoned says that a job was held for longer than the limit while nobody steered.
func (s *Scheduler) abandoned(j *job) string {
	from := s.lease.unattended
	if j.submitted().After(from) {
		from = j.submitted()
	}
	if alone := s.lease.attended.Sub(from); !s.lease.attended.IsZero() && alone > s.HoldLimit {
		return fmt.Sprintf("no controller ran for %v while it was held, and the limit is %v", alone.Round(time.Second),
			s.HoldLimit)
	}
	return ""
}
