package placement

import (
	"cmp"
	"slices"
)

// proportional divides a global batch among devices in proportion to their rates, in whole samples (paper, step 1):
// largest remainders get what rounding leaves.
func proportional(globalBatch int, rates []float64) []int {
	total := 0.0
	for _, r := range rates {
		total += r
	}
	sizes, order, left := make([]int, len(rates)), make([]int, len(rates)), globalBatch
	rest := make([]float64, len(rates))
	for d, r := range rates {
		exact := float64(globalBatch) * (r / total)
		sizes[d] = min(int(exact), left)
		left -= sizes[d]
		rest[d], order[d] = exact-float64(sizes[d]), d
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for n := 0; left > 0; n++ {
		sizes[order[n%len(order)]]++
		left--
	}
	return sizes
}
