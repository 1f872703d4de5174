package speed

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// Point is one measured place on a speed curve.
type Point struct {
	Samples int     // at least 1
	Seconds float64 // finite, at least 0
}

// Points is a measured curve: linear between the points, constant before the first, with the last slope after the last.
// A single point is a proportional worker. It is made by NewPoints.
type Points struct {
	points []Point
}

// NewPoints checks and copies the points. It refuses none at all, samples below 1 or not rising, seconds that fall and
// seconds that are negative or not finite; the error names the point by its index.
func NewPoints(points []Point) (Points, error) {
	if len(points) == 0 {
		return Points{}, errors.New("points: none; give at least one")
	}
	for i, p := range points {
		switch {
		case p.Samples < 1:
			return Points{}, fmt.Errorf("points[%d]: %d samples; give at least 1", i, p.Samples)
		case !(p.Seconds >= 0) || math.IsInf(p.Seconds, 1):
			return Points{}, fmt.Errorf("points[%d]: %v seconds; give a finite number >= 0", i, p.Seconds)
		case i > 0 && p.Samples <= points[i-1].Samples:
			return Points{}, fmt.Errorf("points[%d]: %d samples after %d; give rising samples", i, p.Samples,
				points[i-1].Samples)
		case i > 0 && p.Seconds < points[i-1].Seconds:
			return Points{}, fmt.Errorf("points[%d]: %v seconds after %v; give seconds that do not fall", i, p.Seconds,
				points[i-1].Seconds)
		}
	}
	return Points{append([]Point(nil), points...)}, nil
}

// Seconds is the compute time of n samples; 0 for n <= 0.
func (c Points) Seconds(n int) float64 {
	if n <= 0 || len(c.points) == 0 {
		return 0
	}
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].Samples >= n })
	a, b := c.segment(i)
	switch {
	case i == len(c.points):
		return b.Seconds + slope(a, b)*float64(n-b.Samples)
	case i == 0 && len(c.points) > 1:
		return b.Seconds
	}
	// Rounding must not carry the line past its own end, or the curve would fall there.
	return min(a.Seconds+slope(a, b)*float64(n-a.Samples), b.Seconds)
}

// Samples is the inverse of Seconds: about the most samples computed within the given seconds, up to rounding; +Inf
// where more samples cost no more time.
func (c Points) Samples(seconds float64) float64 {
	if len(c.points) == 0 {
		return math.Inf(1)
	}
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].Seconds > seconds })
	if i == 0 && len(c.points) > 1 {
		return 0
	}
	a, b := c.segment(i)
	return float64(a.Samples) + (seconds-a.Seconds)/slope(a, b)
}

// segment is the line that ends at point i, or the last one when i is past the end. That of a single point starts at
// the origin.
func (c Points) segment(i int) (a, b Point) {
	i = min(i, len(c.points)-1)
	if i > 0 {
		a = c.points[i-1]
	}
	return a, c.points[i]
}

func slope(a, b Point) float64 {
	return (b.Seconds - a.Seconds) / float64(b.Samples-a.Samples)
}
