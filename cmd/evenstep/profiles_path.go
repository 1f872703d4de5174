package main

import (
	"errors"
	"os"
	"path/filepath"
)

// profilesPath is the file of profiles: what the flag says, else EVENSTEP_PROFILES, else one in the user's state folder.
// It was asked for in the first two cases.
func profilesPath(flag string) (path string, asked bool, err error) {
	if flag != "" {
		return flag, true, nil
	}
	if path := os.Getenv("EVENSTEP_PROFILES"); path != "" {
		return path, true, nil
	}
	// A relative one counts as unset, as the XDG specification has it.
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "evenstep", "profiles.db"), false, nil
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "evenstep", "profiles.db"), false, nil
	}
	return "", false, errors.New("--profiles: missing, and none of EVENSTEP_PROFILES, XDG_STATE_HOME and HOME is set; " +
		"give FILE")
}
