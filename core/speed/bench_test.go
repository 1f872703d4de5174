package speed

import "testing"

// One step of one worker: predict it, then learn from it. A step of 1,024 workers is so many times that, and should
// stay well below a millisecond for all but NARX.
func BenchmarkPredictors(b *testing.B) {
	series := contended(1000, 1)
	for _, m := range append(Members(1, 1), Member{"ensemble", NewEnsemble(1, Members(1, 1)...)},
		Member{"ensemble without NARX", NewEnsemble(1, Members(1, 1)[:7]...)}) {
		b.Run(m.Name, func(b *testing.B) {
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				o := series[k%len(series)]
				m.Speed(o.Inputs())
				m.Observe(o)
			}
		})
	}
}
