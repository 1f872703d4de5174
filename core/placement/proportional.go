package placement

import (
	"cmp"
	"slices"
)

// proportional divides a global batch among devices in proportion to their rates, in whole samples, at least one each
// where there are as many (paper, step 1): largest remainders get what rounding leaves.
func proportional(globalBatch int, rates []float64) []int {
	total := 0.0
	for _, r := range rates {
		total += r
	}
	least := min(1, globalBatch/len(rates))
	sizes, order, left := make([]int, len(rates)), make([]int, len(rates)), globalBatch
	rest := make([]float64, len(rates))
	for d, r := range rates {
		exact := float64(float64(globalBatch) * (r / total))
		sizes[d] = max(least, min(int(exact), globalBatch))
		rest[d], order[d] = exact-float64(sizes[d]), d
		left -= sizes[d]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for n := 0; left > 0; n++ {
		sizes[order[n%len(order)]]++
		left--
	}
	for n := 0; left < 0; n++ { // those that were given one for none took more than there is
		if d := order[n%len(order)]; sizes[d] > least {
			sizes[d]--
			left++
		}
	}
	return sizes
}
