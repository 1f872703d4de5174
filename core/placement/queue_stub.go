package placement

import "errors"

type slot struct {
	start  float64
	counts []int
}

func (j *job) completion(s slot) float64 { return s.start + j.seconds(s.counts) }
func (in *instance) queue(w *work, seed uint64) ([]slot, float64) {
	return make([]slot, len(in.jobs)), 0
}
func (in *instance) paperQueue(w *work, seed uint64) ([]slot, float64) { return in.queue(w, seed) }
func (in *instance) exactQueue(w *work) ([]slot, float64, error)       { return nil, 0, errors.New("stub") }
