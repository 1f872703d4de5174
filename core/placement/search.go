package placement

// Search bounds the work of a search.
type Search struct {
	// Budget is how much work to spend, in elementary comparisons of placements; 0 for the default. The same budget
	// gives the same plan.
	Budget int
	// Stop is asked now and then and ends the search at the best plan so far; nil for never.
	Stop func() bool
}

const (
	// The default budget: a second or two of work, more where there are many jobs.
	defaultBudget = 200_000_000
	budgetPerJob  = 100_000
	stopEvery     = 50_000 // units of work between two questions to Stop
)

// work counts down a search's budget.
type work struct {
	left, untilStop int
	stop            func() bool
	cut             bool // Stop said so
}

func (s Search) work() *work {
	w := &work{left: s.Budget, untilStop: stopEvery, stop: s.Stop}
	if w.left <= 0 {
		w.left = defaultBudget
	}
	return w
}

// spend takes n units and says whether to go on.
func (w *work) spend(n int) bool {
	if w.cut || w.left <= 0 {
		return false
	}
	w.left -= n
	if w.untilStop -= n; w.untilStop <= 0 && w.stop != nil {
		w.untilStop = stopEvery
		w.cut = w.stop()
	}
	return !w.cut
}
