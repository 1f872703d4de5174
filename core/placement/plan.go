package placement

// Model is what a plan assumes of time.
type Model string

// The two models of Place.
const (
	// Static: every job starts now and holds its devices to the end, as in the paper. It holds when all minimums fit at
	// once.
	Static Model = "static"
	// Queue: jobs also wait; who has started runs to its end on the devices that it started on.
	Queue Model = "queue"
)

// Plan says where every job runs and from when.
type Plan struct {
	Model  Model
	Policy string
	// Complete is false when Stop cut the search: another machine might have found another plan.
	Complete bool
	// MeanSeconds is the weighted mean of the completion times, Σ weight·JCT / Σ weight, over the jobs in Placed.
	MeanSeconds float64
	// LowerBoundSeconds is below that mean for every schedule of the model.
	LowerBoundSeconds float64
	Fairness          Fairness
	Placed            []Placed     // in the order of Problem.Jobs
	Impossible        []Impossible // in the order of Problem.Jobs
}

// Placed is one job's place in a plan.
type Placed struct {
	Job          int     // index into Problem.Jobs
	StartSeconds float64 // from now; 0 in the static model
	// JCTSeconds is start + run, restart included.
	JCTSeconds float64
	Shares     []Share // where; in the order of Problem.Pools
	BatchSizes []int   // by device in the order of Shares; sums to the global batch
	Reason     string  // why it waits; empty for who starts now
}

// Impossible is a job that cannot run on these devices, even alone.
type Impossible struct {
	Job    int // index into Problem.Jobs
	Reason string
}

// Gap is how far the plan's mean may be above the optimum, as a share of the bound; never negative.
func (p *Plan) Gap() float64 {
	if !(p.LowerBoundSeconds > 0) {
		return 0
	}
	return max(0, (p.MeanSeconds-p.LowerBoundSeconds)/p.LowerBoundSeconds)
}

// Fairness compares each job's completion time with that in an equal share of the devices.
type Fairness struct {
	Jain   float64 // Jain's index of the ratios, in (0, 1]
	MaxRho float64 // the worst ratio
}
