package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// mostHosts bounds what a list of hosts may stand for.
const mostHosts = 1 << 16

// hosts expands Slurm's way of writing node names: m[1-3,07],head, rack[1-2]n[1-4].
func hosts(list string) ([]string, error) {
	if list == "" || list == "(null)" {
		return nil, nil
	}
	var names []string
	for _, pattern := range splitOutside(list) {
		some, err := expand(pattern)
		if err != nil {
			return nil, err
		}
		if names = append(names, some...); len(names) > mostHosts {
			return nil, fmt.Errorf("hosts: more than %d", mostHosts)
		}
	}
	return names, nil
}

// splitOutside splits at the commas that are in no brackets.
func splitOutside(list string) (parts []string) {
	depth, from := 0, 0
	for i, c := range list {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, list[from:])
}

// expand expands the first brackets, and what follows by itself.
func expand(pattern string) ([]string, error) {
	before, rest, bracketed := strings.Cut(pattern, "[")
	if !bracketed {
		if pattern == "" || strings.Contains(pattern, "]") {
			return nil, fmt.Errorf("hosts: %.80q is no list of names", pattern)
		}
		return []string{pattern}, nil
	}
	inside, after, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, fmt.Errorf("hosts: %.80q is no list of names", pattern)
	}
	tails := []string{""}
	if after != "" {
		var err error
		if tails, err = expand(after); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, span := range strings.Split(inside, ",") {
		low, high, isSpan := strings.Cut(span, "-")
		if !isSpan {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || from < 0 || to < from || (to-from)*len(tails) > mostHosts-len(names) {
			return nil, fmt.Errorf("hosts: %.80q is no list of names", pattern)
		}
		for n := from; n <= to; n++ {
			for _, tail := range tails {
				names = append(names, fmt.Sprintf("%s%0*d%s", before, len(low), n, tail))
			}
		}
	}
	return names, nil
}
