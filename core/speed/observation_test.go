package speed

import (
	"math"
	"testing"
)

func TestOnlyWhatIsWithinReasonIsMeasured(t *testing.T) {
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e308, 5e-324} {
		for _, o := range []Observation{{Samples: bad, Seconds: 1}, {Samples: 1, Seconds: bad}} {
			if v, known := o.Speed(); known || v != 0 || o.Measured() {
				t.Errorf("%+v: %v samples/s, measured: %v", o, v, o.Measured())
			}
		}
	}
	o := Observation{Samples: 8, Seconds: 2}
	if v, known := o.Speed(); !known || v != 4 || !o.Measured() {
		t.Errorf("%+v: %v samples/s, measured: %v", o, v, o.Measured())
	}
}
