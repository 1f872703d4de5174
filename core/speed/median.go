package speed

import "slices"

// Median predicts the median of the last speeds, so that no single pause moves it far. It is made by NewMedian.
type Median struct {
	recent []float64 // a ring once it is full
	sorted []float64 // the same speeds, rising
	window int
	oldest int // index into recent once it is full
}

// NewMedian looks back over the given number of measured steps; below 1 counts as 1.
func NewMedian(window int) *Median { return &Median{window: max(window, 1)} }

// Observe learns from one step; one that was not measured is ignored.
func (m *Median) Observe(o Observation) {
	v, known := o.Speed()
	if !known {
		return
	}
	if len(m.recent) < m.window {
		m.recent = append(m.recent, v)
	} else {
		i, _ := slices.BinarySearch(m.sorted, m.recent[m.oldest])
		m.sorted = slices.Delete(m.sorted, i, i+1)
		m.recent[m.oldest] = v
		m.oldest = (m.oldest + 1) % m.window
	}
	i, _ := slices.BinarySearch(m.sorted, v)
	m.sorted = slices.Insert(m.sorted, i, v)
}

// Speed is the prediction for the next step, in samples per second; false while nothing was seen.
func (m *Median) Speed(Inputs) (samplesPerSecond float64, known bool) {
	n := len(m.sorted)
	if n == 0 {
		return 0, false
	}
	return (m.sorted[(n-1)/2] + m.sorted[n/2]) / 2, true
}
