package service

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// measures are what a Balancer tells Prometheus; docs/core.md lists the names. No label is anything that a user chooses:
// that bounds how many series there are, and tells nobody what others run. Per job, see List.
type measures struct {
	stepSeconds, waitShare, batchSize, decisionSeconds prometheus.Histogram
	resizes                                            prometheus.Counter
	refused                                            *prometheus.CounterVec // streams, by gRPC code
}

func newMeasures() *measures {
	return &measures{
		stepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenstep_step_seconds",
			Help:    "Time of a training step, compute and wait, mean over the job's workers.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}), // to 131 s
		waitShare: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenstep_step_wait_share",
			Help:    "Share of a training step that the job's workers waited, for others and for the all-reduce; 0 to 1.",
			Buckets: []float64{0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1}}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenstep_batch_size",
			Help:    "Samples that a worker got, when a job opened or its batch sizes changed.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 17)}), // to 65,536
		decisionSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenstep_decision_seconds",
			Help:    "Time that a decision about batch sizes took, one for each step.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10)}), // to 2.6 s
		resizes: prometheus.NewCounter(prometheus.CounterOpts{Name: "evenstep_resizes_total",
			Help: "Decisions that changed a job's batch sizes."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenstep_refused_total",
			Help: "Streams that the core ended with an error, by gRPC code."}, []string{"code"}),
	}
}

func (m *measures) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.stepSeconds, m.waitShare, m.batchSize, m.decisionSeconds, m.resizes, m.refused}
}

// sizes counts the batch sizes that are put in force.
func (m *measures) sizes(all []int) {
	for _, n := range all {
		m.batchSize.Observe(float64(n))
	}
}

// step counts what a step cost, where that was told.
func (m *measures) step(costs []cost) {
	if seconds, share := stepCost(costs); seconds > 0 {
		m.stepSeconds.Observe(seconds)
		m.waitShare.Observe(share)
	}
}

// What of a Balancer is counted when it is asked for.
var (
	openJobs    = prometheus.NewDesc("evenstep_jobs", "Jobs that are open.", nil, nil)
	openWorkers = prometheus.NewDesc("evenstep_workers", "Workers of the jobs that are open.", nil, nil)
)

// Describe makes a Balancer a prometheus.Collector.
func (b *Balancer) Describe(to chan<- *prometheus.Desc) {
	to <- openJobs
	to <- openWorkers
	for _, c := range b.measures.collectors() {
		c.Describe(to)
	}
}

// Collect tells what the Balancer counted.
func (b *Balancer) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	jobs, workers := len(b.jobs), b.workers
	b.mu.Unlock()
	to <- prometheus.MustNewConstMetric(openJobs, prometheus.GaugeValue, float64(jobs))
	to <- prometheus.MustNewConstMetric(openWorkers, prometheus.GaugeValue, float64(workers))
	for _, c := range b.measures.collectors() {
		c.Collect(to)
	}
}

// placements are what a Placer tells Prometheus.
type placements struct {
	gap, seconds prometheus.Histogram
}

func newPlacements() *placements {
	return &placements{
		gap: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenstep_placement_gap",
			Help:    "How far the mean completion time of a plan may be above the least possible, relative to that.",
			Buckets: []float64{0, 0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenstep_placement_seconds",
			Help:    "Time that the search for a plan took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}), // to 65 s
	}
}

// planned counts a plan. One that places no job is as good as any.
func (p *placements) planned(mean, bound, seconds float64) {
	p.seconds.Observe(seconds)
	if gap := (mean - bound) / bound; !math.IsNaN(gap) && !math.IsInf(gap, 0) {
		p.gap.Observe(gap)
	}
}

// Describe makes a Placer a prometheus.Collector.
func (p *Placer) Describe(to chan<- *prometheus.Desc) {
	p.placements.gap.Describe(to)
	p.placements.seconds.Describe(to)
}

// Collect tells what the Placer counted.
func (p *Placer) Collect(to chan<- prometheus.Metric) {
	p.placements.gap.Collect(to)
	p.placements.seconds.Collect(to)
}
