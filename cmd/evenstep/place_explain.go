package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/evenstep/evenstep/core/placement"
)

const (
	mostRows = 50 // nodes in the picture, and jobs in words
	letters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// explainPlan writes a plan in words, and who has which device at the start as a picture: a row for each node, a letter for
// each device.
func explainPlan(out io.Writer, p *placement.Problem, plan *placement.Plan) {
	var text strings.Builder
	writePlan(&text, p, plan)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(out, oneLine(strings.TrimRight(line, "\n")))
	}
}

func writePlan(w io.Writer, p *placement.Problem, plan *placement.Plan) {
	fmt.Fprintf(w, "%s model: the mean completion time is %s, at most %.2f %% above the best possible (at least %s).\n", plan.Model,
		duration(plan.MeanSeconds), 100*plan.Gap(), duration(plan.LowerBoundSeconds))
	if !plan.Complete {
		fmt.Fprintln(w, "The deadline cut the search: more time may find a better plan.")
	}
	for n, placed := range plan.Placed {
		if n == mostRows {
			fmt.Fprintf(w, "  and %d more jobs\n", len(plan.Placed)-n)
			break
		}
		fmt.Fprintf(w, "%s %s: %s, ends after %s", letter(n), oneLine(p.Jobs[placed.Job].ID), where(placed.Shares),
			duration(placed.JCTSeconds))
		if placed.Reason != "" {
			fmt.Fprintf(w, "; starts after %s: %s", duration(placed.StartSeconds), placed.Reason)
		}
		fmt.Fprintln(w)
	}
	for _, i := range plan.Impossible {
		fmt.Fprintf(w, "- %s cannot run: %s\n", oneLine(p.Jobs[i.Job].ID), i.Reason)
	}
	picture(w, p, plan)
}

// letter marks the nth job in the picture.
func letter(n int) string { return letters[n%len(letters) : n%len(letters)+1] }

// where says how many devices of which type on which nodes.
func where(shares []placement.Share) string {
	var parts []string
	for n, s := range shares {
		if n == 4 && len(shares) > 5 {
			parts = append(parts, fmt.Sprintf("%d more nodes", len(shares)-n))
			break
		}
		parts = append(parts, fmt.Sprintf("%d %s on %s", s.Count, oneLine(s.Type), oneLine(s.Node)))
	}
	return strings.Join(parts, ", ")
}

func duration(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds < 7200:
		return fmt.Sprintf("%.1f min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	}
	return fmt.Sprintf("%.1f d", seconds/86400)
}

// picture draws nodes × devices at the start; a dot is a free device.
func picture(w io.Writer, p *placement.Problem, plan *placement.Plan) {
	held := make(map[placement.Share]string) // by node and type
	for n, placed := range plan.Placed {
		for _, s := range placed.Shares {
			if placed.StartSeconds == 0 {
				held[placement.Share{Node: s.Node, Type: s.Type}] += strings.Repeat(letter(n), min(256, s.Count))
			}
		}
	}
	var nodes []string
	width := 0
	for _, pool := range p.Pools {
		if len(nodes) <= mostRows && !slices.Contains(nodes, pool.Node) {
			nodes = append(nodes, pool.Node)
			width = max(width, len(pool.Node))
		}
	}
	for n, node := range nodes {
		if n == mostRows {
			fmt.Fprintln(w, "and more nodes")
			break
		}
		fmt.Fprintf(w, "%-*s ", width, node)
		for _, pool := range p.Pools {
			if pool.Node == node {
				row := held[placement.Share{Node: pool.Node, Type: pool.Type}]
				fmt.Fprintf(w, " %s %s", pool.Type, row+strings.Repeat(".", min(256, max(0, pool.Count-len(row)))))
			}
		}
		fmt.Fprintln(w)
	}
}
