package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Scheduler is what the loop needs of one.
type Scheduler interface {
	Snapshot(ctx context.Context) (*Snapshot, error)
	// Apply makes one update, all of it or nothing. It refuses when the job has moved on since the snapshot.
	Apply(ctx context.Context, u Update) error
}

// Loop is snapshot, plan, apply, again and again.
type Loop struct {
	Scheduler Scheduler
	Planner   Planner
	Log       hclog.Logger
	said      map[string]string // the last thing said of each subject, so that it is said once
}

// deadline bounds the search for a plan.
const deadline = 2 * time.Second

// Run makes a round at every tick until ctx ends. What keeps rounds from being made is in the log, once.
func (l *Loop) Run(ctx context.Context, tick <-chan time.Time) {
	for {
		if err := l.Round(ctx); err != nil && ctx.Err() == nil && l.news("", err.Error()) {
			l.Log.Error("nothing is steered from here", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// Round makes one round. The error is that of the snapshot, without which nothing can be done. An update that fails is
// tried again in the next round, from a new snapshot.
func (l *Loop) Round(ctx context.Context) error {
	s, err := l.Scheduler.Snapshot(ctx)
	if err != nil {
		return err
	}
	if l.said[""] != "" {
		l.Log.Info("the scheduler answers again")
	}
	l.forget(s)
	updates := l.Updates(s)
	for _, j := range s.Jobs {
		// What is about to be released is said then, and not again.
		releases := slices.ContainsFunc(updates, func(u Update) bool { return u.Job == j.ID })
		if j.Unsteerable != "" && !releases && l.said[j.ID] == "" {
			l.said[j.ID] = j.Unsteerable
			l.Log.Info("not steered", "job", j.ID, "why", j.Unsteerable)
		}
	}
	for _, u := range updates {
		if err := l.Scheduler.Apply(ctx, u); err != nil {
			if ctx.Err() == nil && l.news(u.Job, err.Error()) {
				l.Log.Error("update refused", "job", u.Job, "update", string(u.Kind), "error", err)
			}
			continue
		}
		if news := l.news(u.Job, u.Why); news || u.Kind != Hold {
			l.Log.Info(string(u.Kind), "job", u.Job, "why", u.Why, "batch_sizes", u.BatchSizes)
		}
	}
	return nil
}

// Updates is what a round would do.
func (l *Loop) Updates(s *Snapshot) []Update {
	p, begin := l.Planner, time.Now()
	if p.Stop == nil {
		p.Stop = func() bool { return time.Since(begin) > deadline }
	}
	return p.Updates(s)
}

// news says whether this is not what was said last of the subject.
func (l *Loop) news(subject, what string) bool {
	l.remember()
	if l.said[subject] == what {
		return false
	}
	l.said[subject] = what
	return true
}

func (l *Loop) remember() {
	if l.said == nil {
		l.said = map[string]string{}
	}
}

// forget drops what was said of jobs that are gone.
func (l *Loop) forget(s *Snapshot) {
	l.remember()
	here := map[string]bool{}
	for _, j := range s.Jobs {
		here[j.ID] = true
	}
	for id := range l.said {
		if !here[id] {
			delete(l.said, id)
		}
	}
}
