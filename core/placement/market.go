package placement

import "container/heap"

const (
	marketStep   = 3e-3 // of the highest valuation: the least rise of a price
	bidsPerBuyer = 2000 // on average, after which a market counts as one that does not clear
)

// market clears the market of one category (paper, step 3; Easley and Kleinberg, chapter 10): every job demands as many
// devices as the category says, those that it values most beyond their price, and the price of what is demanded more than
// there is rises, until none is. The prices rise by bids, as in Bertsekas' auction for similar objects. If leave, a job
// takes less than the category says, down to its minimum, where more costs more than it is worth: that is not the paper's.
//
// value is what one device of each kind is worth to a job; 0 where it cannot run. It is nil where the market does not
// clear.
func (in *instance) market(c category, value [][]float64, leave bool, w *work) *assignment {
	if devices := sum(in.capacity()); !w.spend(devices) {
		return nil
	}
	m := newAuction(in, c, value)
	m.leave = leave
	for bids := bidsPerBuyer * (len(m.buyers) + len(in.kinds)); len(m.buyers) > 0; bids-- {
		if bids == 0 || !w.spend(2*len(in.kinds)) {
			return nil
		}
		i := m.buyers[0]
		m.buyers = m.buyers[1:]
		if !m.bid(i) {
			return nil
		}
	}
	for i := range in.jobs {
		m.reckon(i)
	}
	return m.assignment
}

// auction is a market on its way.
type auction struct {
	*assignment
	value  [][]float64
	slots  []slots // by kind
	buyers []int   // a job for each device that it still demands
	wants  []int   // by job: devices that it has or still demands
	step   float64
	leave  bool
}

// slots are the devices of one kind, the cheapest first.
type slots []slotPrice

type slotPrice struct {
	price float64
	job   int // who holds it; -1 for nobody
}

func (s slots) Len() int           { return len(s) }
func (s slots) Less(a, b int) bool { return s[a].price < s[b].price }
func (s slots) Swap(a, b int)      { s[a], s[b] = s[b], s[a] }
func (s *slots) Push(any)          { panic("slots are fixed") }
func (s *slots) Pop() any          { panic("slots are fixed") }

func newAuction(in *instance, c category, value [][]float64) *auction {
	m := &auction{assignment: newAssignment(in), value: value, wants: make([]int, len(in.jobs))}
	for _, free := range m.free {
		s := make(slots, free)
		for d := range s {
			s[d].job = -1
		}
		m.slots = append(m.slots, s)
	}
	highest := 0.0
	for i := range in.jobs {
		if in.jobs[i].fixed {
			continue
		}
		m.wants[i] = c[i]
		for range c[i] {
			m.buyers = append(m.buyers, i)
		}
		for _, v := range value[i] {
			highest = max(highest, v)
		}
	}
	m.step = marketStep * highest
	return m
}

// bid lets a job take the cheapest device of the kind that is worth most to it beyond its price, whoever had it, and
// raises its price to where the second best would be as good. It is false where the job needs one and there is none.
func (m *auction) bid(i int) bool {
	kind, best, second := -1, 0.0, 0.0
	for k, s := range m.slots {
		if m.value[i][k] <= 0 || len(s) == 0 {
			continue
		}
		switch net := m.value[i][k] - s[0].price; {
		case kind < 0:
			kind, best, second = k, net, net-m.step
		case net > best:
			kind, best, second = k, net, best
		case net > second:
			second = net
		}
	}
	if kind < 0 || best < 0 && m.leave && m.wants[i] > m.in.jobs[i].min {
		m.wants[i]--
		return m.leave && m.wants[i] >= m.in.jobs[i].min
	}
	s := m.slots[kind]
	for child := 1; child <= 2 && child < len(s); child++ { // the second cheapest of the same kind
		second = max(second, m.value[i][kind]-s[child].price)
	}
	if loser := s[0].job; loser >= 0 {
		m.buyers = append(m.buyers, loser)
		m.counts[loser][kind]--
	} else {
		m.free[kind]--
	}
	m.counts[i][kind]++
	s[0] = slotPrice{s[0].price + max(best-second, 0) + m.step, i}
	heap.Fix(&m.slots[kind], 0)
	return true
}
