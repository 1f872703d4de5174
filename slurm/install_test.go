package slurm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What make install-slurm puts there calls the binary that it put there.
func TestInstall(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "evenstep")
	// The binary is the build's to test: a stand-in says how it was called.
	install := exec.Command("make", "-C", "..", "-o", "build", "install-slurm", "PREFIX="+prefix)
	if _, err := os.Stat("../build/evenstep"); err != nil {
		install = exec.Command("make", "-C", "..", "install-slurm", "PREFIX="+prefix)
	}
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	echo := "#!/bin/sh\necho \"$@\" >" + prefix + "/called; echo \"$@\"\n"
	if err := os.WriteFile(filepath.Join(prefix, "evenstep"), []byte(echo), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prolog", "epilog", "task-prolog"} {
		out, err := exec.Command(filepath.Join(prefix, name)).CombinedOutput()
		called, _ := os.ReadFile(filepath.Join(prefix, "called"))
		if err != nil || string(called) != "slurm "+name+"\n" {
			t.Errorf("%s: %v, called %q", name, err, called)
		}
		want := ""
		if name == "task-prolog" {
			want = string(called)
		}
		if string(out) != want {
			t.Errorf("%s wrote %q", name, out)
		}
	}
	service, err := os.ReadFile(filepath.Join(prefix, "evenstep-slurm.service"))
	if err != nil || !strings.Contains(string(service), "ExecStart="+prefix+"/evenstep slurm controller --profiles "+prefix+"/profiles.json\n") {
		t.Errorf("%v: %s", err, service)
	}
}
