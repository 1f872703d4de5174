package speed

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustPoints(t interface{ Fatal(...any) }, points ...Point) Points {
	c, err := NewPoints(points)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSeconds(t *testing.T) {
	affine := Affine{Fixed: 1, PerSample: 0.5, Floor: 3}
	points := mustPoints(t, Point{4, 2}, Point{8, 3}, Point{10, 7})
	for name, c := range map[string]struct {
		curve interface{ Seconds(int) float64 }
		n     int
		want  float64
	}{
		"no samples take no time":             {affine, 0, 0},
		"fewer than none take no time":        {affine, -1, 0},
		"flat up to the floor":                {affine, 3, 3},
		"linear above the floor":              {affine, 6, 4},
		"no samples of points":                {points, 0, 0},
		"constant before the first point":     {points, 1, 2},
		"on a point":                          {points, 8, 3},
		"linear between points":               {points, 9, 5},
		"the last slope after the last point": {points, 12, 11},
		"one point is proportional below":     {mustPoints(t, Point{4, 2}), 2, 1},
		"one point is proportional above":     {mustPoints(t, Point{4, 2}), 6, 3},
	} {
		if got := c.curve.Seconds(c.n); got != c.want {
			t.Errorf("%s: %v seconds, want %v", name, got, c.want)
		}
	}
}

func TestNewPointsRefuses(t *testing.T) {
	for want, points := range map[string][]Point{
		"points: none; give at least one":                             {},
		"points[0]: 0 samples; give at least 1":                       {{0, 1}},
		"points[0]: NaN seconds; give a finite number >= 0":           {{1, math.NaN()}},
		"points[0]: +Inf seconds; give a finite number >= 0":          {{1, math.Inf(1)}},
		"points[0]: -1 seconds; give a finite number >= 0":            {{1, -1}},
		"points[1]: 4 samples after 4; give rising samples":           {{4, 1}, {4, 2}},
		"points[1]: 1 seconds after 2; give seconds that do not fall": {{4, 2}, {5, 1}},
	} {
		if _, err := NewPoints(points); fmt.Sprint(err) != want {
			t.Errorf("got %q, want %q", fmt.Sprint(err), want)
		}
	}
}

// A solver relies on seconds that never fall, to the last bit, and on an inverse that is close.
func TestPointsNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []Point
		var at Point
		for range rapid.IntRange(1, 5).Draw(t, "points") {
			at.Samples += rapid.IntRange(1, 9).Draw(t, "samples")
			at.Seconds += rapid.Float64Range(0, 1).Draw(t, "seconds")
			points = append(points, at)
		}
		c := mustPoints(t, points...)
		for n := range 60 {
			low, high := c.Seconds(n), c.Seconds(n+1)
			if low > high {
				t.Fatalf("%v: %d samples take %v s, one more %v s", points, n, low, high)
			}
			if got := c.Samples((low + high) / 2); high > low*1.001 && n > 0 && math.Abs(got-float64(n)-0.5) > 0.51 {
				t.Fatalf("%v: %v samples in %v s, between %d and %d", points, got, (low+high)/2, n, n+1)
			}
		}
	})
}
