package slurm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Submission is a call of sbatch that was found right.
type Submission struct{ args []string }

// Prepare makes a submission of a batch script with a begin time that is the hold limit ahead. The arguments are sbatch's.
// It refuses a script that does not ask for Evenstep, or has a begin time of its own.
func Prepare(script string, args []string, holdLimit time.Duration) (*Submission, error) {
	file, err := os.Open(script)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	inScript, err := directives(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", script, err)
	}
	comment := ""
	// What is on the command line overrides what is in the script.
	for _, options := range [][]string{inScript, args} {
		if _, found := option(options, "begin", "b"); found {
			return nil, errors.New("--begin: a job with a begin time of its own is not steered; leave it out, or use sbatch")
		}
		if c, found := option(options, "comment", ""); found {
			comment = c
		}
	}
	r, _, err := ParseComment(comment)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--comment: %w", err)
	case r == nil:
		return nil, fmt.Errorf("--comment: %.80q does not ask for Evenstep; give \"evenstep workload=... global_batch=... "+
			"samples=...\"", comment)
	}
	s := &Submission{append([]string{"--parsable", fmt.Sprintf("--begin=now+%d", int(holdLimit.Seconds()))}, args...)}
	s.args = append(s.args, "--comment="+Comment(r, Note{Held: true}), script)
	return s, nil
}

// Submit calls sbatch and returns the job's id.
func (s *Submission) Submit(ctx context.Context) (string, error) {
	out, err := command(ctx, "sbatch", s.args...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";") // a cluster's name may follow
	return id, nil
}

// directives are the options in a script's #SBATCH lines, which end with the first command.
func directives(script io.Reader) ([]string, error) {
	var words []string
	lines := bufio.NewScanner(script)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		rest, is := strings.CutPrefix(line, "#SBATCH")
		if is {
			words = append(words, split(rest)...)
		} else if line != "" && !strings.HasPrefix(line, "#") {
			break
		}
	}
	return words, lines.Err()
}

// split splits a line into words as sbatch does: quotes hold words together, a backslash takes the next character as it
// is, and # begins a remark.
func split(line string) (words []string) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	escaped := false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '"' || c == '\'':
			inWord, quote = true, c
		case c == ' ' || c == '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case c == '#' && !inWord:
			return words
		default:
			inWord = true
			word.WriteRune(c)
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}

// option finds the last value of an option, which may be shortened as getopt allows.
func option(words []string, long, short string) (value string, found bool) {
	for i, word := range words {
		name, given, attached := strings.Cut(word, "=")
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case strings.HasPrefix(name, "--") && len(name) >= 4 && strings.HasPrefix("--"+long, name):
			if !attached {
				given = next
			}
			value, found = given, true
		case short != "" && strings.HasPrefix(word, "-"+short) && !strings.HasPrefix(word, "--"):
			value, found = strings.TrimPrefix(word, "-"+short), true
			if value == "" {
				value = next
			}
		}
	}
	return value, found
}
