package placement

// queuePlan is a schedule of the queue model: allotments, starts by job, and the order that makes them.
type queuePlan struct {
	order []int
	allot []allotment
	start []float64
	cost  float64 // Σ weight·completion
	loose int     // the job that is allotted anew when its turn comes, or -1
}

func (p *queuePlan) copy(of *queuePlan) {
	p.order = append(p.order[:0], of.order...)
	p.allot = append(p.allot[:0], of.allot...)
	p.start = append(p.start[:0], of.start...)
	p.cost = of.cost
	p.loose = -1
}

func (p *queuePlan) clone() *queuePlan {
	c := new(queuePlan)
	c.copy(p)
	return c
}

// place starts one job as early as it fits.
func (q *queueSearch) place(p *queuePlan, i int) {
	a := &p.allot[i]
	start, looked := q.profile.earliest(a, 0)
	q.work.spend(2*looked + len(a.counts) + 8)
	end := start + a.seconds(start)
	q.profile.occupy(start, end, a.counts)
	p.start[i] = start
	p.cost += float64(q.weight[i] * end)
}

// decode starts all jobs in the plan's order. It gives up and returns false as soon as the cost must exceed the limit.
func (q *queueSearch) decode(p *queuePlan, limit float64) bool {
	q.profile.reset(q.in.kinds)
	p.cost = 0
	rest := 0.0
	for i := range p.allot {
		rest += q.least[i]
	}
	for _, i := range p.order {
		if i == p.loose {
			p.allot[i] = q.pick(i, shortestList, 0, 2*q.random.Float64()*q.turns[i].price)
		}
		q.place(p, i)
		if rest -= q.least[i]; p.cost+float64(rest*(1-1e-9)) > limit {
			return false
		}
	}
	return p.cost <= limit
}
