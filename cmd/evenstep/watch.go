package main

import (
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// showReport writes a report, the first one or one that follows others: as a line of JSON, or as text, which in a terminal
// takes the place of the one before while it is watched.
func showReport(r interface{ text() string }, output string, watched, first bool, out io.Writer) error {
	if output == "json" {
		return writeJSON(out, r)
	}
	text := r.text()
	switch file, isFile := out.(*os.File); {
	case watched && isFile && isatty.IsTerminal(file.Fd()):
		text = inPlace(text, first)
	case !first:
		text = "\n" + text
	}
	_, err := io.WriteString(out, text)
	return err
}

// inPlace makes a text for a terminal take the place of the one before it: the cursor goes home, each line is cleared
// to its end, and so is what is below.
func inPlace(text string, first bool) string {
	text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	if first {
		return "\x1b[2J" + text
	}
	return text
}
