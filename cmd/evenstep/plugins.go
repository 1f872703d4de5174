package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/devices"
	"github.com/evenstep/evenstep/plugin/policy"
	"github.com/evenstep/evenstep/plugin/scheduler"
)

func newPluginsCommand() *cobra.Command {
	var folder, output string
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List what is built in and what plugins add",
		Long: `Plugins lists policies, device probers and schedulers: kind, name, version, origin and health.

Those that are not built in are executables named evenstep-KIND-NAME in the plugin folder. Each is started, asked for
its version, and ended again; one that may not or cannot be is listed with the reason. docs/plugins.md says how to
write one.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return badInput(fmt.Errorf("--output: unknown form %q; give text or json", output))
			}
			found, err := openPlugins(folder, newLog())
			if err != nil {
				return err
			}
			defer found.Close()
			list := pluginList{found.Path, append(builtins(), describePlugins(found)...)}
			if output == "json" {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			return list.writeText(cmd.OutOrStdout())
		},
	}
	addPluginDir(cmd, &folder)
	cmd.Flags().StringVar(&output, "output", "text", "text or json")
	return cmd
}

func addPluginDir(cmd *cobra.Command, folder *string) {
	cmd.Flags().StringVar(folder, "plugin-dir", "", "`DIR` with plugins (default: plugins beside this executable)")
}

func newLog() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "evenstep", Output: os.Stderr})
}

// openPlugins looks through the folder that the user named, which has to be there, or through the usual one.
func openPlugins(folder string, log hclog.Logger) (*plugin.Folder, error) {
	if folder != "" {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			return nil, badInput(fmt.Errorf("--plugin-dir: %s is not there; give a folder", folder))
		}
	}
	found, err := plugin.Open(cmp.Or(folder, plugin.DefaultPath()), log)
	if err != nil {
		return nil, badInput(fmt.Errorf("--plugin-dir: %w", err))
	}
	taken := slices.Concat(kindNames(), placementPolicies())
	for _, p := range found.Plugins {
		if p.Kind == plugin.Policy && p.Refused == nil && slices.Contains(taken, p.Name) {
			p.Refused = errors.New("its name is that of a built-in policy; give it another")
		}
	}
	return found, nil
}

// pluginList is the JSON that plugins writes.
type pluginList struct {
	Folder  string        `json:"folder"`
	Plugins []pluginEntry `json:"plugins"`
}

type pluginEntry struct {
	Kind    plugin.Kind `json:"kind"`
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	Origin  string      `json:"origin"` // built-in, or the path
	Health  string      `json:"health"` // ok, refused or failed
	Reason  string      `json:"reason,omitempty"`
}

func builtins() (entries []pluginEntry) {
	for _, name := range slices.Concat(policyNames(), placementPolicies()) {
		entries = append(entries, pluginEntry{plugin.Policy, name, version, "built-in", "ok", ""})
	}
	return append(entries, pluginEntry{plugin.Devices, "cpu", version, "built-in", "ok", ""})
}

// describePlugins asks all plugins of the folder at the same time.
func describePlugins(folder *plugin.Folder) []pluginEntry {
	entries := make([]pluginEntry, len(folder.Plugins))
	var asked sync.WaitGroup
	for i, p := range folder.Plugins {
		asked.Go(func() {
			e := pluginEntry{Kind: p.Kind, Name: p.Name, Origin: p.Path, Health: "ok"}
			var err error
			switch {
			case p.Refused != nil:
				e.Health, err = "refused", p.Refused
			case p.Kind == plugin.Policy:
				e.Version, err = policy.Describe(p)
			case p.Kind == plugin.Devices:
				e.Version, err = devices.Describe(p)
			case p.Kind == plugin.Scheduler:
				e.Version, err = scheduler.Describe(p)
			}
			if err != nil {
				e.Reason = oneLine(err.Error())
				if p.Refused == nil {
					e.Health = "failed"
				}
			}
			entries[i] = e
		})
	}
	asked.Wait()
	return entries
}

// writeText writes the list for people.
func (l pluginList) writeText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\tname\tversion\thealth\torigin")
	for _, e := range l.Plugins {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(string(e.Kind)), oneLine(e.Name), cmp.Or(e.Version, "-"), e.Health,
			oneLine(e.Origin))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range l.Plugins {
		if e.Reason != "" {
			if _, err := fmt.Fprintf(out, "%s: %s\n", oneLine(e.Origin), e.Reason); err != nil {
				return err
			}
		}
	}
	return nil
}
