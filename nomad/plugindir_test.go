package nomad

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatMustNotBeInPluginDir(t *testing.T) {
	folder := t.TempDir()
	put := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	put("evenstep-device", 0o755)
	put("nomad-device-nvidia", 0o755)
	put("evenstep.conf", 0o644)
	if err := os.Mkdir(filepath.Join(folder, "evenstep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if found := misplaced(folder); len(found) != 0 {
		t.Errorf("Nomad starts with it, yet got %q", found)
	}
	put("evenstep-device.old", 0o755)
	put("evenstep-devices-nvml", 0o755)
	put("evenstep-policy-mine", 0o711)
	if err := os.Symlink("nowhere", filepath.Join(folder, "evenstep-scheduler-toy")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range misplaced(folder) {
		got = append(got, strings.ReplaceAll(string(f), folder+"/", ""))
	}
	want := []string{
		"evenstep-device.old may run in the place of evenstep-device, without its configuration: move it elsewhere",
		"evenstep-devices-nvml is no plugin of Nomad's, which does not start with it: move it elsewhere",
		"evenstep-policy-mine is no plugin of Nomad's, which does not start with it: move it elsewhere",
		"evenstep-scheduler-toy cannot be read (stat evenstep-scheduler-toy: no such file or directory), " +
			"and Nomad does not start with it: remove it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if found := misplaced(filepath.Join(folder, "none")); len(found) != 0 {
		t.Errorf("got %q", found)
	}
}
