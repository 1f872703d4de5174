package profile

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// These are our defaults, not published values. Rates are logarithms, so sigmas are relative.
const (
	rank        = 1 // of what is learned beyond how fast workloads and devices are on the whole
	dim         = 1 + rank
	firstNoise  = 0.15 // sigma of what no factor explains
	firstKind   = 0.3  // sigma of what workloads of one kind have in common on one device
	firstLoad   = 0.3  // sigma of a device's loadings
	unseenSigma = 1    // of a device's speed of which nothing public is known
	rowSigma    = 10   // of a workload's rate on a device, before any was seen
	priorCount  = 4    // observations that each of the first sigmas stands for
	passes      = 60   // over all factors
)

// entry is the logarithm of one measured rate.
type entry struct {
	row, column int
	value       float64
	variance    float64 // of the measurement
}

// completion explains a table of log rates with many holes, workloads by devices, as
//
//	rate(w, d) = a_w + b_d + u_w·v_d + g(kind of w, d) + noise
//
// how fast a workload is, how fast a device is, a low-rank part for what suits one workload and not another, and what
// workloads of one kind have in common on a device. It is variational Bayesian matrix completion (Ilin and Raiko,
// "Practical approaches to principal component analysis in the presence of missing values", JMLR 11, 2010), so a
// prediction comes with its variance: it grows where little is known of the workload or of the device. The part g, and
// that what is public about devices is where b begins, are ours.
type completion struct {
	rows, columns []factor
	kinds         []int              // by row; -1 for a row that is the only one of its kind
	common        map[[2]int]*shared // by kind and column
	order         [][2]int           // the keys of common as they first came
	byRow         [][]entry
	byColumn      [][]entry
	noise         float64 // variance
	kind          float64 // variance of g
	load          float64 // variance of a device's loadings
	priors        []prior // by column
}

// prior is what is known of a device before anything was measured on it.
type prior struct{ value, sigma float64 }

// factor is what is known of a workload or a device: its offset, then its loadings. The covariance is symmetric.
type factor struct {
	mean vector
	cov  matrix
}

type (
	vector [dim]float64
	matrix [dim][dim]float64
)

// shared is what is known of a kind of workloads on a device.
type shared struct{ mean, variance float64 }

// newCompletion explains the entries. kinds are by row; rows that have the same number are of one kind. priors are by
// column.
func newCompletion(entries []entry, kinds []int, priors []prior) *completion {
	c := &completion{kinds: slices.Clone(kinds), priors: priors, common: map[[2]int]*shared{},
		noise: firstNoise * firstNoise, kind: firstKind * firstKind, load: firstLoad * firstLoad,
		byRow: make([][]entry, len(kinds)), byColumn: make([][]entry, len(priors))}
	c.markAlone()
	for range kinds {
		c.rows = append(c.rows, newFactor(0, 0, 1))
	}
	for i, p := range priors {
		// Loadings that are all alike would stay so.
		first := firstLoad * math.Cos((float64(i)+0.5)*math.Pi/float64(len(priors)))
		c.columns = append(c.columns, newFactor(p.value, first, 0.01))
	}
	for _, e := range entries {
		c.byRow[e.row] = append(c.byRow[e.row], e)
		c.byColumn[e.column] = append(c.byColumn[e.column], e)
		at := [2]int{c.kinds[e.row], e.column}
		if at[0] >= 0 && c.common[at] == nil {
			c.common[at] = &shared{0, c.kind}
			c.order = append(c.order, at)
		}
	}
	for range passes {
		c.pass()
	}
	return c
}

// markAlone takes rows out of their kind that are its only ones.
func (c *completion) markAlone() {
	count := map[int]int{}
	for _, k := range c.kinds {
		count[k]++
	}
	for i, k := range c.kinds {
		if count[k] < 2 {
			c.kinds[i] = -1
		}
	}
}

func newFactor(offset, loading, variance float64) factor {
	f := factor{}
	for i := range dim {
		f.mean[i], f.cov[i][i] = loading, variance
	}
	f.mean[0] = offset
	return f
}

// pass updates every factor, what kinds have in common, and the variances, each given the others.
func (c *completion) pass() {
	for w, own := range c.byRow {
		c.rows[w] = c.row(own, c.kinds[w], c.rows[w])
	}
	for d, own := range c.byColumn {
		s := newSolver(c.priors[d].value, c.priors[d].sigma, math.Sqrt(c.load))
		for _, e := range own {
			kind := c.kinds[e.row]
			s.add(c.rows[e.row], e.value-c.shared(kind, e.column).mean, c.noiseOf(kind)+e.variance)
		}
		c.columns[d] = s.solve(c.columns[d])
	}
	c.updateShared()
	c.updateVariances()
}

// row is what a workload's own entries say of it, given the devices.
func (c *completion) row(own []entry, kind int, before factor) factor {
	s := newSolver(0, rowSigma, 1)
	for _, e := range own {
		s.add(c.columns[e.column], e.value-c.shared(kind, e.column).mean, c.noiseOf(kind)+e.variance)
	}
	return s.solve(before)
}

// noiseOf is the variance that no factor explains. A row that is alone of its kind has its own peculiarities in it.
func (c *completion) noiseOf(kind int) float64 {
	if kind < 0 && len(c.order) > 0 {
		return c.noise + c.kind
	}
	return c.noise
}

// shared is what a kind has in common on a device; nothing for one that is alone, or was not seen there.
func (c *completion) shared(kind, column int) shared {
	if g := c.common[[2]int{kind, column}]; g != nil {
		return *g
	}
	if kind >= 0 {
		return shared{0, c.kind}
	}
	return shared{}
}

func (c *completion) updateShared() {
	precision, weighted := map[[2]int]float64{}, map[[2]int]float64{}
	for w, own := range c.byRow {
		for _, e := range own {
			at, noise := [2]int{c.kinds[w], e.column}, c.noise+e.variance
			mean, _ := product(c.rows[w], c.columns[e.column])
			precision[at] += 1 / noise
			weighted[at] += (e.value - mean) / noise
		}
	}
	for _, at := range c.order {
		variance := 1 / (1/c.kind + precision[at])
		*c.common[at] = shared{weighted[at] * variance, variance}
	}
}

func (c *completion) updateVariances() {
	noise, count := priorCount*firstNoise*firstNoise, float64(priorCount)
	for w, own := range c.byRow {
		for _, e := range own {
			mean, variance := product(c.rows[w], c.columns[e.column])
			g := c.shared(c.kinds[w], e.column)
			off := e.value - mean - g.mean
			known := c.noiseOf(c.kinds[w]) - c.noise + e.variance // that is not of the noise
			noise += max(0, off*off+variance+g.variance-known)
			count++
		}
	}
	c.noise = noise / count

	load, count := priorCount*firstLoad*firstLoad, float64(priorCount)
	for _, f := range c.columns {
		for i := 1; i < dim; i++ {
			load += f.mean[i]*f.mean[i] + f.cov[i][i]
			count++
		}
	}
	c.load = load / count

	kind, count := priorCount*firstKind*firstKind, float64(priorCount)
	for _, at := range c.order {
		g := c.common[at]
		kind += g.mean*g.mean + g.variance
		count++
	}
	c.kind = kind / count
}

// predict is the log rate of a workload, known by its own entries and its kind, on a column, and one sigma of it. Column
// -1 is a device that no workload was seen on, of which the prior is known.
func (c *completion) predict(own []entry, kind, column int, unseen prior) (value, sigma float64) {
	device := newFactor(unseen.value, 0, c.load)
	device.cov[0][0] = unseen.sigma * unseen.sigma
	if column >= 0 {
		device = c.columns[column]
	}
	mean, variance := product(c.row(own, kind, newFactor(0, 0, 1)), device)
	g := c.shared(kind, column)
	return mean + g.mean, math.Sqrt(variance + g.variance + c.noiseOf(kind))
}

// product is the mean and the variance of a_w + b_d + u_w·v_d.
func product(w, d factor) (mean, variance float64) {
	mean = w.mean[0] + d.mean[0]
	for i := 1; i < dim; i++ {
		mean += float64(w.mean[i] * d.mean[i])
		for j := 1; j < dim; j++ {
			variance += w.cov[i][j] * d.cov[i][j]
		}
	}
	return mean, variance + w.cov.inner(d.design()) + d.cov.inner(w.design())
}

// design is what the other side's offset and loadings are multiplied with.
func (f *factor) design() vector {
	v := f.mean
	v[0] = 1
	return v
}

// inner is v·m·v.
func (m *matrix) inner(v vector) (sum float64) {
	for i := range dim {
		for j := range dim {
			sum += v[i] * m[i][j] * v[j]
		}
	}
	return sum
}

// solver collects what the entries of a row say of it, or of a column.
type solver struct {
	precision matrix
	weighted  vector
}

func newSolver(offset, offsetSigma, loadSigma float64) *solver {
	s := &solver{}
	for i := range dim {
		s.precision[i][i] = 1 / (loadSigma * loadSigma)
	}
	s.precision[0][0] = 1 / (offsetSigma * offsetSigma)
	s.weighted[0] = offset / (offsetSigma * offsetSigma)
	return s
}

// add takes one entry, whose other side is known as far as the factor says.
func (s *solver) add(other factor, value, noise float64) {
	design, rest := other.design(), value-other.mean[0]
	for i := range dim {
		for j := range dim {
			s.precision[i][j] += design[i] * design[j] / noise
		}
		s.weighted[i] += rest * design[i] / noise
	}
	for i := 1; i < dim; i++ {
		for j := 1; j < dim; j++ {
			s.precision[i][j] += other.cov[i][j] / noise
		}
		s.weighted[i] -= other.cov[i][0] / noise
	}
}

// solve is the factor; the one before where the numbers do not allow it.
func (s *solver) solve(before factor) factor {
	var flat [dim * dim]float64
	for i := range dim {
		copy(flat[i*dim:], s.precision[i][:])
	}
	var cholesky mat.Cholesky
	if !cholesky.Factorize(mat.NewSymDense(dim, flat[:])) {
		return before
	}
	var f factor
	cov, mean := mat.NewSymDense(dim, nil), mat.NewVecDense(dim, f.mean[:])
	if cholesky.InverseTo(cov) != nil || cholesky.SolveVecTo(mean, mat.NewVecDense(dim, s.weighted[:])) != nil {
		return before
	}
	for i := range dim {
		for j := range dim {
			f.cov[i][j] = cov.At(i, j)
		}
	}
	return f
}
