package slurm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/evenstep/evenstep/core/request"
)

// Note is what Evenstep wrote into a job's comment, after the user's words and a bar. The owner of a job may write it as
// well, so it is parsed as strictly, and nothing in it gives a job more than it asked for.
type Note struct {
	// Held says that the begin time is ours, not the user's.
	Held bool
	// Released says that the job was left to Slurm's own placement for good.
	Released bool
	// MinNodes and MaxNodes are what the user asked for, before the nodes were named; 0 while they are not.
	MinNodes, MaxNodes int
	Required           string // the nodes that the user named, as Slurm writes them
	Sizes              []int  // batch sizes in rank order; nil while not known
}

const (
	bar = " | "
	// maxComment bounds the bytes of a comment; Slurm refuses more.
	maxComment = 1024
	// maxSizes bounds the workers of a job.
	maxSizes = 1 << 16
)

var (
	nodesForm    = regexp.MustCompile(`^([0-9]{1,6})-([0-9]{1,6})$`)
	requiredForm = regexp.MustCompile(`^[A-Za-z0-9._,\[\]-]{1,512}$`)
	sizeForm     = regexp.MustCompile(`^([0-9]{1,10})(x([0-9]{1,5}))?$`)
)

// ParseComment takes a comment apart. The request is nil for a job that is none of ours. A note that is not well formed
// counts as none.
func ParseComment(comment string) (*request.Request, Note, error) {
	words, rest, _ := strings.Cut(comment, bar)
	r, err := request.FromComment(words)
	if r == nil && err == nil {
		return nil, Note{}, nil
	}
	note, ok := parseNote(rest)
	if !ok {
		note = Note{}
	}
	return r, note, err
}

func parseNote(text string) (n Note, ok bool) {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "held":
			n.Held, ok = true, value == ""
		case "released":
			n.Released, ok = true, value == ""
		case "nodes":
			n.MinNodes, n.MaxNodes, ok = parseRange(value)
		case "require":
			n.Required, ok = value, requiredForm.MatchString(value)
		case "sizes":
			n.Sizes, ok = parseSizes(value)
		default:
			ok = false
		}
		if !ok {
			return Note{}, false
		}
	}
	return n, true
}

func parseRange(text string) (low, high int, ok bool) {
	parts := nodesForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, 0, false
	}
	low, _ = strconv.Atoi(parts[1])
	high, _ = strconv.Atoi(parts[2])
	return low, high, 1 <= low && low <= high
}

// parseSizes reads "341x2,342": runs of equal sizes.
func parseSizes(text string) (sizes []int, ok bool) {
	for _, run := range strings.Split(text, ",") {
		parts := sizeForm.FindStringSubmatch(run)
		if parts == nil {
			return nil, false
		}
		size, _ := strconv.Atoi(parts[1])
		times := 1
		if parts[3] != "" {
			times, _ = strconv.Atoi(parts[3])
		}
		if size < 1 || times < 1 || times > maxSizes-len(sizes) {
			return nil, false
		}
		for range times {
			sizes = append(sizes, size)
		}
	}
	return sizes, true
}

func formatSizes(sizes []int) string {
	var runs []string
	for i := 0; i < len(sizes); {
		k := i
		for k < len(sizes) && sizes[k] == sizes[i] {
			k++
		}
		run := strconv.Itoa(sizes[i])
		if k > i+1 {
			run += fmt.Sprintf("x%d", k-i)
		}
		runs = append(runs, run)
		i = k
	}
	return strings.Join(runs, ",")
}

// Comment is the comment of a job with a note. Sizes that make it too long for Slurm are left out: then the job starts
// with equal ones.
func Comment(r *request.Request, n Note) string {
	words := "evenstep " + r.String()
	var notes []string
	if n.Held {
		notes = append(notes, "held")
	}
	if n.Released {
		notes = append(notes, "released")
	}
	if n.MaxNodes > 0 {
		notes = append(notes, fmt.Sprintf("nodes=%d-%d", n.MinNodes, n.MaxNodes))
	}
	if n.Required != "" {
		notes = append(notes, "require="+n.Required)
	}
	if len(n.Sizes) > 0 {
		sized := append(notes, "sizes="+formatSizes(n.Sizes))
		if text := words + bar + strings.Join(sized, " "); len(text) <= maxComment {
			return text
		}
	}
	if len(notes) == 0 {
		return words
	}
	return words + bar + strings.Join(notes, " ")
}
