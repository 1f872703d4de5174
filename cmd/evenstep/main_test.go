package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"evenstep": main, "trainer": trainerMain})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"refuses":        refuses,
			"large":          large,
			"refused":        refusedBy("simulate", "steps"),
			"clusterrefused": refusedBy("simulate", "cluster"),
		},
	})
}

// refuses runs a command on each case of a file: a line of input, then "exit code: message", then an empty line.
func refuses(ts *testscript.TestScript, _ bool, args []string) {
	for _, c := range strings.Split(strings.TrimSpace(ts.ReadFile(args[1])), "\n\n") {
		input, want, _ := strings.Cut(c, "\n")
		ts.Check(os.WriteFile(ts.MkAbs("case.json"), []byte(input), 0o600))
		code := "2"
		if strings.HasPrefix(want, "3: ") {
			code = "3"
		}
		err := ts.Exec("evenstep", args[0], "case.json")
		got := strings.TrimSuffix(ts.ReadFile("stderr"), "\n")
		if err == nil || err.Error() != "exit status "+code || got != "evenstep "+args[0]+": "+want[3:] {
			ts.Fatalf("%s\ngot  %v: %s\nwant %s", input, err, got, want)
		}
		if out := ts.ReadFile("stdout"); out != "" {
			ts.Fatalf("%s\nwrote %s", input, out)
		}
	}
}

// refusedBy runs a command and wants an exit code and, last on stderr, a line: refused CODE MESSAGE ARGUMENTS...
func refusedBy(command ...string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		err := ts.Exec("evenstep", append(slices.Clone(command), args[2:]...)...)
		lines := strings.Split(strings.TrimSuffix(ts.ReadFile("stderr"), "\n"), "\n")
		got, want := lines[len(lines)-1], "evenstep "+strings.Join(command, " ")+": "+args[1]
		if err == nil || err.Error() != "exit status "+args[0] || got != want {
			ts.Fatalf("got  %v: %s\nwant %s: %s", err, got, args[0], args[1])
		}
		if out := ts.ReadFile("stdout"); out != "" {
			ts.Fatalf("wrote %s", out)
		}
	}
}

// large writes a file of one byte more than size accepts.
func large(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), make([]byte, maxInputBytes+1), 0o600))
}

func TestTheVersionIsThatOfThePythonPackage(t *testing.T) {
	init, err := os.ReadFile("../../torchrun/evenstep/__init__.py")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\n__version__ = %q\n", version); !strings.Contains(string(init), want) {
		t.Errorf("not %s in torchrun/evenstep/__init__.py", strings.TrimSpace(want))
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"as it is, Grüße":            "as it is, Grüße",
		"two\nlines \x1b[31m":        "two lines  [31m",
		strings.Repeat("1", 1000000): strings.Repeat("1", 500) + "...",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
