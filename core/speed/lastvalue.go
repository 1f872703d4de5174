package speed

// LastValue predicts the speed last seen. The zero value is ready.
type LastValue struct{ last float64 }

// Observe learns from one step; one that was not measured is ignored.
func (l *LastValue) Observe(o Observation) {
	if v, known := o.Speed(); known {
		l.last = v
	}
}

// Speed is the prediction for the next step, in samples per second; false while nothing was seen.
func (l *LastValue) Speed(Inputs) (samplesPerSecond float64, known bool) { return l.last, l.last > 0 }
