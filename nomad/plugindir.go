package nomad

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkPlugins looks into the plugin_dir of the agent that was asked, where that is on this host.
func (s *Scheduler) checkPlugins(ctx context.Context) (found []Finding) {
	var self struct {
		Config struct{ PluginDir string }
	}
	if err := s.query(ctx, "/v1/agent/self", "", &self); err != nil || self.Config.PluginDir == "" {
		return nil // it takes the right to read agents, which a controller has no use for
	}
	return misplaced(self.Config.PluginDir)
}

// misplaced looks for what must not be in a plugin_dir of Nomad's, which starts each program in there: it does not
// start itself where one is no plugin of its own, and of two that call themselves alike it takes either.
func misplaced(folder string) (found []Finding) {
	const ours = "evenstep-device"
	files, _ := filepath.Glob(filepath.Join(folder, "evenstep*"))
	for _, file := range files {
		info, err := os.Stat(file)
		switch name := filepath.Base(file); {
		case name == ours:
		case err != nil:
			found = append(found, Finding(fmt.Sprintf("%s cannot be read (%v), and Nomad does not start with it: remove it",
				file, err)))
		case info.IsDir() || info.Mode().Perm()&0o111 == 0: // Nomad leaves them alone
		case strings.HasPrefix(name, ours) && !strings.HasPrefix(name, ours+"s"):
			found = append(found, Finding(fmt.Sprintf("%s may run in the place of %s, without its configuration: move it "+
				"elsewhere", file, ours)))
		default:
			found = append(found, Finding(file+" is no plugin of Nomad's, which does not start with it: move it elsewhere"))
		}
	}
	return found
}
