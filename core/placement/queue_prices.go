package placement

import (
	"slices"
	"sort"
)

// prices are λ by kind and π: value[i] at time[i], linear between, 0 from the last; total[i] is the integral from 0 to
// time[i], and before time[i+1] π falls by density[i] a second; densities do not rise.
type prices struct {
	lambda, time, value, density, total []float64
}

// at is π(t), t >= 0.
func (p *prices) at(t float64) float64 {
	i := p.piece(t)
	if i+1 == len(p.time) {
		return 0
	}
	return max(0, p.value[i]-float64(p.density[i]*(t-p.time[i])))
}

// until is the integral of π from 0 to t.
func (p *prices) until(t float64) float64 {
	i := p.piece(t)
	if i+1 == len(p.time) {
		return p.total[i]
	}
	d := t - p.time[i]
	return p.total[i] + float64(d*(p.value[i]-float64(p.density[i]*d)/2))
}

// piece is the last i with time[i] <= t.
func (p *prices) piece(t float64) int {
	return sort.Search(len(p.time)-1, func(i int) bool { return p.time[i+1] > t })
}

// best is where w·m + A·π(m) is least for A/w: where π stops to fall by more than w/A a second.
func (p *prices) best(density float64) float64 {
	return p.time[sort.Search(len(p.density), func(i int) bool { return p.density[i] <= density })]
}

// supply is Λ.
func (p *prices) supply(kinds []kind) float64 {
	sum := 0.0
	for k := range kinds {
		sum += float64(float64(kinds[k].cap) * p.lambda[k])
	}
	return sum
}

// worth is what counts cost a second at π = 1.
func (p *prices) worth(counts []int) float64 {
	sum := 0.0
	for k, c := range counts {
		sum += float64(float64(c) * p.lambda[k])
	}
	return sum
}

// hold is the start s >= 0 at which w·(s + run) + area/run·∫π from s to s + run is least, and that least cost. It is
// convex in s, its slope zero where π falls by w·run/area over the run.
func (p *prices) hold(w, area, run float64) (start, cost float64) {
	fall := w * run / area
	falls := func(s float64) float64 { return p.at(s) - p.at(s+run) - fall }
	last := len(p.time) - 1
	if run > 0 && falls(0) > 0 {
		i := sort.Search(last, func(i int) bool { return falls(p.time[i+1]) <= 0 })
		if i == last { // rounding: it is 0 from there
			i = last - 1
		}
		from, to := p.piece(p.time[i]+run), p.piece(p.time[i+1]+run)
		k := from + sort.Search(to-from, func(k int) bool { return falls(p.time[from+k+1]-run) <= 0 })
		start = p.time[i]
		if k > from {
			start = max(start, p.time[k]-run)
		}
		steep := p.density[i]
		if k < last {
			steep -= p.density[k]
		}
		if above := falls(start); above > 0 && steep > 0 {
			start = min(start+above/steep, p.time[i+1])
		}
	}
	return start, float64(w*(start+run)) + float64(area*p.mean(start, run))
}

// mean is π on average from start, for a run.
func (p *prices) mean(start, run float64) float64 {
	if !(run > 0) {
		return p.at(start)
	}
	return (p.until(start+run) - p.until(start)) / run
}

// settle computes values and integrals from times and densities.
func (p *prices) settle() {
	n := len(p.time)
	p.value, p.total = slices.Grow(p.value[:0], n)[:n], slices.Grow(p.total[:0], n)[:n]
	p.value[n-1] = 0
	for i := n - 2; i >= 0; i-- {
		p.value[i] = p.value[i+1] + float64(p.density[i]*(p.time[i+1]-p.time[i]))
	}
	p.total[0] = 0
	for i := 1; i < n; i++ {
		p.total[i] = p.total[i-1] + float64((p.value[i-1]+p.value[i])/2*(p.time[i]-p.time[i-1]))
	}
}

func (p *prices) clone() prices {
	return prices{slices.Clone(p.lambda), slices.Clone(p.time), slices.Clone(p.value), slices.Clone(p.density),
		slices.Clone(p.total)}
}
