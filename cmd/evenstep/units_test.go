package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a systemd unit starts is a command that is there, with flags that it has.
func TestUnitsStartCommandsThatAreThere(t *testing.T) {
	units, err := filepath.Glob("../../systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("%q, %v", units, err)
	}
	for _, unit := range units {
		content, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(content), "\\\n", " ")
		_, line, _ := strings.Cut(text, "\nExecStart=/usr/local/bin/evenstep ")
		line, _, _ = strings.Cut(line, "\n")
		cmd, args, err := newRootCommand().Find(strings.Fields(line))
		if err != nil || len(args) == 0 {
			t.Fatalf("%s: %q, %v", unit, line, err)
		}
		if err := cmd.ParseFlags(args); err != nil || cmd.Flags().NArg() != 0 {
			t.Errorf("%s: %v, %q", unit, err, cmd.Flags().Args())
		}
		for _, file := range []string{"tls-cert", "tls-key", "tls-ca"} {
			name := strings.TrimPrefix(cmd.Flag(file).Value.String(), "%d/")
			if !strings.Contains(text, "\nLoadCredential="+name+":/etc/evenstep/"+name+"\n") {
				t.Errorf("%s: %s is not loaded", unit, name)
			}
		}
	}
}
