package nomadtest

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// batch is what a stream says of one write.
type batch struct {
	Index  uint64
	Events []api.Event
}

// events keeps the last batches, and passes new ones on.
type events struct {
	mu   sync.Mutex
	kept []batch
	subs map[chan batch]chan struct{} // with what ends each
	lost bool                         // no stream gets any more
}

const mostKept = 100

func (e *events) publish(index uint64, all []api.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(all) == 0 || e.lost {
		return
	}
	for i := range all {
		all[i].Index = index
	}
	b := batch{index, all}
	e.kept = append(e.kept, b)
	if len(e.kept) > mostKept {
		e.kept = e.kept[1:]
	}
	for sub := range e.subs {
		select {
		case sub <- b:
		default: // too slow: it loses them, without a trace
		}
	}
}

func (e *events) subscribe() (sub chan batch, ended chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subs == nil {
		e.subs = map[chan batch]chan struct{}{}
	}
	sub, ended = make(chan batch, 1000), make(chan struct{})
	for _, b := range e.kept {
		sub <- b
	}
	e.subs[sub] = ended
	return sub, ended
}

// CutStreams ends all event streams, as a server does that goes.
func (f *Fake) CutStreams() {
	f.events.mu.Lock()
	defer f.events.mu.Unlock()
	for sub, ended := range f.events.subs {
		close(ended)
		delete(f.events.subs, sub)
	}
}

// LoseEvents has event streams go on without a word of what happens, as one that is too slow does for a while.
func (f *Fake) LoseEvents() {
	f.events.mu.Lock()
	defer f.events.mu.Unlock()
	f.events.lost = true
}

// stream is the endpoint of the event stream.
func (f *Fake) stream(w http.ResponseWriter, r *http.Request) {
	sub, ended := f.events.subscribe()
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	flush := w.(http.Flusher)
	for {
		var line any = struct{}{}
		select {
		case <-r.Context().Done():
			return
		case <-ended:
			return
		case <-beat.C:
		case line = <-sub:
		}
		if err := json.NewEncoder(w).Encode(line); err != nil {
			return
		}
		flush.Flush()
	}
}
