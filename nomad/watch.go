package nomad

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
)

// watch is what Nomad's event stream says. It names what to ask for again, and never what there is: events get lost
// without a trace where a stream begins, and there is none of Variables. So what is known stays what lists say, and all
// is asked for anew after each beginning of a stream, and while there is none.
type watch struct {
	mu      sync.Mutex
	streams bool
	changed topics
	woken   chan struct{} // has room for one
}

const (
	// silence is how long a stream may say nothing; Nomad sends something at least every 30 seconds.
	silence = 90 * time.Second
	// atMost bounds the rounds that events bring about to one in such a time.
	atMost = time.Second
	// redial is how long to wait before a stream that ended is asked for again.
	redial = 2 * time.Second
)

// Watch ticks at each interval, and sooner when something changes in Nomad; that ends with ctx.
func (s *Scheduler) Watch(ctx context.Context, interval time.Duration, log hclog.Logger) <-chan time.Time {
	s.watch.woken = make(chan struct{}, 1)
	ticks := make(chan time.Time)
	go s.follow(ctx, log)
	go func() {
		regular := time.NewTicker(interval)
		defer regular.Stop()
		for {
			now := time.Time{}
			select {
			case <-ctx.Done():
				return
			case now = <-regular.C:
			case <-s.watch.woken:
				now = time.Now()
			}
			select {
			case <-ctx.Done():
				return
			case ticks <- now:
			}
			pause(ctx, min(atMost, interval))
		}
	}()
	return ticks
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// follow follows one stream after the other.
func (s *Scheduler) follow(ctx context.Context, log hclog.Logger) {
	said := ""
	for ctx.Err() == nil {
		// Where the token sees some namespaces only, a stream of all is refused.
		err := s.stream(ctx, api.AllNamespacesNamespace)
		if refused(err, 403) || refused(err, 500) {
			err = s.stream(ctx, s.namespace)
		}
		s.watch.set(func(w *watch) { w.streams = false })
		if ctx.Err() == nil && said != err.Error() {
			said = err.Error()
			log.Warn("no event stream: Nomad is asked at each interval", "error", said)
		}
		pause(ctx, redial)
	}
}

// stream reads one stream to its end, which always is an error.
func (s *Scheduler) stream(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dog := time.AfterFunc(silence, cancel)
	defer dog.Stop()
	const path = "/v1/event/stream"
	q := (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)
	body, err := s.client.Raw().Response(path+"?topic=Job&topic=Allocation&topic=Evaluation&topic=Node", q)
	if err != nil {
		return answered(path, err)
	}
	defer body.Close()
	s.watch.note(everything)
	s.watch.set(func(w *watch) { w.streams = true })
	for d := json.NewDecoder(body); ; {
		var batch struct{ Events []struct{ Topic api.Topic } }
		if err := d.Decode(&batch); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("nomad: %s: %w", path, err)
		}
		dog.Reset(silence)
		changed := topics{}
		for _, e := range batch.Events {
			changed = changed.and(topics{jobs: e.Topic != api.TopicNode, nodes: e.Topic == api.TopicNode})
		}
		if changed != (topics{}) {
			s.watch.note(changed)
		}
	}
}

func (w *watch) set(to func(*watch)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	to(w)
}

// note keeps what changed for the next look, and wakes who waits for it.
func (w *watch) note(changed topics) {
	w.set(func(w *watch) { w.changed = w.changed.and(changed) })
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (t topics) and(more topics) topics {
	return topics{t.jobs || more.jobs, t.nodes || more.nodes}
}

// news is what may have changed since it was asked for last.
func (w *watch) news() (changed topics) {
	w.set(func(w *watch) {
		changed, w.changed = w.changed, topics{}
		if !w.streams {
			changed = everything
		}
	})
	return changed
}
