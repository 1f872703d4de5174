package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/profile"
)

// profilesWait bounds the wait for others who have the file.
const profilesWait = time.Second

// profilesFlags are what the user said.
type profilesFlags struct{ file, output string }

func newProfilesCommand() *cobra.Command {
	var f profilesFlags
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "Show and move what was learned of devices",
		Long: `Profiles are what training has shown: how fast each device runs each workload. The core records them while jobs train
and starts jobs with them; place plans with them.

The file is --profiles, else EVENSTEP_PROFILES, else evenstep/profiles.db in XDG_STATE_HOME or ~/.local/state. Only one
core that is shared holds it; while it does, these commands exit 4 with its process id.`,
	}
	needsCommand(cmd)
	cmd.PersistentFlags().StringVar(&f.file, "profiles", "", "`FILE` of profiles")
	cmd.AddCommand(f.list(), f.show(), f.export(), f.imports(), f.forget())
	return cmd
}

// withOutput gives a command the flag --output and checks it.
func (f *profilesFlags) withOutput(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.output, "output", "text", "text or json")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if f.output != "text" && f.output != "json" {
			return badInput(fmt.Errorf("--output: unknown form %q; give text or json", f.output))
		}
		return nil
	}
	return cmd
}

func (f *profilesFlags) list() *cobra.Command {
	return f.withOutput(&cobra.Command{
		Use:   "list",
		Short: "List workloads and the device types that they were measured on",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			book, err := f.read()
			if err != nil {
				return err
			}
			return f.write(cmd.OutOrStdout(), newProfilesList(book))
		},
	})
}

func (f *profilesFlags) show() *cobra.Command {
	return f.withOutput(&cobra.Command{
		Use:   "show WORKLOAD [TYPE]",
		Short: "Show how fast a workload is on each device type, measured or estimated",
		Long: `Show says how fast a workload is on each device type that the file knows, or on the one given. What was not measured is
estimated, from the workload's other devices, the devices' other workloads and public figures of devices; nine of ten
estimates are within the bar. A workload that was never seen, and a type of which nothing is known, exit 3.`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			book, err := f.read()
			if err != nil {
				return err
			}
			shown, err := newProfilesShown(book, args[0], args[1:])
			if err != nil {
				return infeasible(err)
			}
			return f.write(cmd.OutOrStdout(), shown)
		},
	})
}

func (f *profilesFlags) export() *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write all profiles as JSON",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			book, err := f.read()
			if err != nil {
				return err
			}
			out := profilesExport{Version: profile.Version, Profiles: []profile.Record{}}
			for _, e := range book.Profiles() {
				out.Profiles = append(out.Profiles, e.Record())
			}
			return writeJSON(cmd.OutOrStdout(), out)
		},
	}
}

// profilesExport is what export writes and import reads.
type profilesExport struct {
	Version  int              `json:"version"`
	Profiles []profile.Record `json:"profiles"`
}

func (f *profilesFlags) imports() *cobra.Command {
	return f.withOutput(&cobra.Command{
		Use:   "import [FILE]",
		Short: "Add profiles from JSON that export wrote",
		Long: `Import adds profiles: of two of one workload on one device the one seen last stays. FILE absent or - is stdin:

  {"version":1,"profiles":[{"workload":"resnet50:64","type":"Tesla V100-SXM2-16GB",
    "curve":{"fixed_seconds":0.01,"seconds_per_sample":0.0014},"batch_size":64}]}

batch_size is where the curve was measured. Optional: device (the id of one device), sigma (of the time there, relative
to it; 0.05), fixed_share_sigma (of the fixed part of that time; 0.3), spread (from run to run; 0.05),
communicate_seconds, memory_per_sample_bytes, largest_batch_size (batch_size), steps (1), last_seen (now).`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var in profilesInput
			if err := readInput(args, cmd.InOrStdin(), &in); err != nil {
				return badInput(err)
			}
			entries, err := in.entries(time.Now())
			if err != nil {
				return badInput(err)
			}
			file, err := f.open(false)
			if err != nil {
				return err
			}
			defer file.Close()
			if err := file.Import(entries); err != nil {
				return ofFile(err)
			}
			return f.write(cmd.OutOrStdout(), profilesCount{Imported: len(entries)})
		},
	})
}

func (f *profilesFlags) forget() *cobra.Command {
	return f.withOutput(&cobra.Command{
		Use:   "forget WORKLOAD [TYPE]",
		Short: "Remove the profiles of a workload, on one device type or on all",
		Args:  arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := f.open(false)
			if err != nil {
				return err
			}
			defer file.Close()
			deviceType := ""
			if len(args) > 1 {
				deviceType = args[1]
			}
			count, err := file.Forget(args[0], deviceType)
			switch {
			case err != nil:
				return ofFile(err)
			case count == 0:
				return infeasible(unknownProfile(args[0], args[1:]))
			}
			return f.write(cmd.OutOrStdout(), profilesCount{Forgotten: count})
		},
	})
}

func unknownProfile(workload string, deviceType []string) error {
	if len(deviceType) > 0 {
		return fmt.Errorf("%q on %q: no such profile; evenstep profiles list shows them", workload, deviceType[0])
	}
	return fmt.Errorf("%q: no such workload; evenstep profiles list shows them", workload)
}

// open opens the file.
func (f *profilesFlags) open(readOnly bool) (*profile.File, error) {
	path, _, err := profilesPath(f.file)
	if err != nil {
		return nil, badInput(err)
	}
	file, err := profile.OpenFile(path, readOnly, profilesWait)
	var held *profile.HeldError
	switch {
	case errors.As(err, &held):
		return nil, unreachable(err)
	case errors.Is(err, fs.ErrNotExist) && readOnly:
		return nil, err
	case err != nil:
		return nil, badInput(err)
	}
	return file, nil
}

// read reads the file; one that is not there is empty.
func (f *profilesFlags) read() (*profile.Book, error) {
	book := profile.NewBook(time.Now)
	file, err := f.open(true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return book, nil
	case err != nil:
		return nil, err
	}
	defer file.Close()
	return book, ofFile(book.Read(file))
}

// ofFile is what went wrong with an open file: the user's to change where it is none of ours.
func ofFile(err error) error {
	var foreign *profile.ForeignError
	if errors.As(err, &foreign) {
		return badInput(err)
	}
	return err
}

// texter is a result that people can read too.
type texter interface{ writeText(io.Writer) error }

func (f *profilesFlags) write(out io.Writer, result texter) error {
	if f.output == "json" {
		return writeJSON(out, result)
	}
	return result.writeText(out)
}
