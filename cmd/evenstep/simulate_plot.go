package main

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/evenstep/evenstep/core/simulate"
)

const (
	plotWidth   = 10 * vg.Inch
	panelHeight = 3 * vg.Inch
	mostPoints  = 500 // of a line; of longer ones each is the mean of the steps around it
	mostLines   = 20  // workers in a panel
)

// drawSteps draws the step time under each policy, and below it a panel of batch sizes for each, as a PNG.
func drawSteps(path string, t *simulate.Trace, names []string, replays []*simulate.Replay) error {
	panels := [][]*plot.Plot{{newPanel("step time", "seconds")}}
	for i, r := range replays {
		times := panels[0][0]
		if err := addLine(times, names[i], plotutil.Color(i), len(r.StepSeconds), func(k int) float64 {
			return r.StepSeconds[k]
		}); err != nil {
			return err
		}
		shares := newPanel("batch sizes: "+names[i], "relative to equal")
		for w := range min(len(t.Workers), mostLines) {
			equal := float64(r.Sizes[0][w])
			if err := addLine(shares, "", plotutil.Color(w), len(r.Sizes), func(k int) float64 {
				return float64(r.Sizes[k][w]) / equal
			}); err != nil {
				return err
			}
		}
		panels = append(panels, []*plot.Plot{shares})
	}
	return savePanels(path, panels)
}

// savePanels writes panels, one below the other, as a PNG.
func savePanels(path string, panels [][]*plot.Plot) error {
	canvas := vgimg.New(plotWidth, panelHeight*vg.Length(len(panels)))
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: vg.Points(10), PadTop: vg.Points(5), PadRight: vg.Points(10)}
	for i, row := range plot.Align(panels, tiles, draw.New(canvas)) {
		panels[i][0].Draw(row[0])
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return file.Close()
}

func newPanel(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "step", y
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

// addLine adds the values of so many steps as a line, and to the legend if it has a name.
func addLine(p *plot.Plot, name string, c color.Color, steps int, at func(step int) float64) error {
	var points plotter.XYs
	stride := (steps + mostPoints - 1) / mostPoints
	for from := 0; from < steps; from += stride {
		to, sum := min(from+stride, steps), 0.0
		for k := from; k < to; k++ {
			sum += at(k)
		}
		points = append(points, plotter.XY{X: float64(from+to-1) / 2, Y: sum / float64(to-from)})
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color = c
	p.Add(line)
	if name != "" {
		p.Legend.Add(name, line)
	}
	return nil
}
