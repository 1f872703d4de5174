// Package document puts measured tables into the documents that report them.
package document

import (
	"fmt"
	"os"
	"strings"
)

// Update puts text between the markers of a section of the document at the path: <!-- begin SECTION --> and
// <!-- end SECTION -->, each on a line of its own. It is an error where they are missing.
func Update(path, section, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", section), fmt.Sprintf("<!-- end %s -->\n", section)
	before, rest, begun := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		return fmt.Errorf("%s: no section between %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o644)
}

// Conclude says on stderr which requirements are missed and what went wrong, and ends the program: with 1 if anything did.
func Conclude(missed []string, err error) {
	for _, m := range missed {
		fmt.Fprintln(os.Stderr, "evidence: missed:", m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
	}
	if err != nil || len(missed) > 0 {
		os.Exit(1)
	}
}
