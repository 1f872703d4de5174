package main

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/evenstep/evenstep/core/simulate"
)

// drawCluster draws, as a PNG, how completion times are distributed and how busy the devices are under each policy, and
// below them which job each device runs under each.
func drawCluster(path string, names []string, results []*simulate.ClusterResult) error {
	jcts := clusterPanel("completion times", "hours", "share of the jobs")
	busy := clusterPanel("utilization", "hours", "share of the devices")
	panels := [][]*plot.Plot{{jcts}, {busy}}
	end := 0.0
	for _, r := range results {
		end = max(end, r.MakespanSeconds()/3600)
	}
	for i, r := range results {
		if err := addCurve(jcts, names[i], i, distribution(r)); err != nil {
			return err
		}
		if err := addCurve(busy, names[i], i, utilization(r)); err != nil {
			return err
		}
		devices := clusterPanel("devices: "+names[i], "hours", "device")
		devices.Add(gantt{r})
		devices.X.Max = end
		panels = append(panels, []*plot.Plot{devices})
	}
	busy.X.Max = end
	jcts.Legend.Top = false
	return savePanels(path, panels)
}

func clusterPanel(title, x, y string) *plot.Plot {
	p := newPanel(title, y)
	p.X.Label.Text = x
	p.X.Min = 0
	return p
}

func addCurve(p *plot.Plot, name string, index int, points plotter.XYs) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color = plotutil.Color(index)
	line.StepStyle = plotter.PostStep
	p.Add(line)
	p.Legend.Add(name, line)
	return nil
}

// distribution is the share of the jobs that are done so many hours after their arrival.
func distribution(r *simulate.ClusterResult) plotter.XYs {
	jcts := slices.Sorted(slices.Values(r.JCTs()))
	points := plotter.XYs{{X: 0, Y: 0}}
	for i, s := range jcts {
		points = append(points, plotter.XY{X: s / 3600, Y: float64(i+1) / float64(len(jcts))})
	}
	return points
}

// utilization is the share of the devices that jobs hold, by hours since the first arrival.
func utilization(r *simulate.ClusterResult) plotter.XYs {
	first, bins := r.Rounds.Jobs[0].ArrivalSeconds, make([]float64, mostPoints)
	width := r.MakespanSeconds() / mostPoints
	for _, s := range r.Spans {
		from, to := s.FromSeconds-first, s.ToSeconds-first
		for b := int(from / width); b < mostPoints && float64(b)*width < to; b++ {
			overlap := min(to, float64(b+1)*width) - max(from, float64(b)*width)
			bins[b] += max(0, overlap) * float64(len(s.Devices))
		}
	}
	points := make(plotter.XYs, 0, mostPoints)
	for b, busy := range bins {
		points = append(points, plotter.XY{X: float64(b) * width / 3600,
			Y: busy / width / float64(r.Rounds.Cluster.Devices())})
	}
	return points
}

// gantt draws a bar for each span of each device, in the job's colour.
type gantt struct{ *simulate.ClusterResult }

func (g gantt) DataRange() (xmin, xmax, ymin, ymax float64) {
	return 0, g.MakespanSeconds() / 3600, 0, float64(g.Rounds.Cluster.Devices())
}

func (g gantt) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	first := g.Rounds.Jobs[0].ArrivalSeconds
	for _, s := range g.Spans {
		left, right := x((s.FromSeconds-first)/3600), x((s.ToSeconds-first)/3600)
		for _, d := range s.Devices {
			low, high := y(float64(d)), y(float64(d)+0.9)
			c.FillPolygon(jobColor(s.Job), []vg.Point{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high},
				{X: left, Y: high}})
		}
	}
}

// jobColor gives neighbours colours that are far apart: hues in steps of the golden ratio.
func jobColor(job int) color.Color {
	_, hue := math.Modf(float64(job) * math.Phi)
	channel := func(shift float64) uint8 {
		_, h := math.Modf(hue + shift)
		return uint8(80 + 160*min(1, max(0, math.Abs(6*h-3)-1)))
	}
	return color.RGBA{channel(0), channel(2. / 3), channel(1. / 3), 255}
}
