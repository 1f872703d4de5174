package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/simulate"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/policy"
)

// stepsFlags are what the user said.
type stepsFlags struct {
	trace, synthetic  string
	policies          []string
	workers, steps    int
	seed              uint64
	job               simulate.Job
	plot, allocations string
	output            string
	folder            string // of plugins
}

func newSimulateStepsCommand() *cobra.Command {
	var f stepsFlags
	cmd := &cobra.Command{
		Use:   "steps --trace CSV | --synthetic NAME",
		Short: "Replay per-worker step times under batch sizing policies",
		Long: `Steps replays how long each worker took in each step, and says what batch sizing would have made of it.

A trace is a CSV with a header. The columns worker, step (or time) and seconds (or batch_time_norm) count, others are
ignored; - is stdin. Only steps that have all workers count; of rows for the same worker and step the last one does. A
time that is empty or 0 was not measured. A synthetic trace is made up: static, contention, drift, throttle, burst or
join, of --workers and --steps.

A worker's time for n samples is its time in the trace * n * workers / global batch. With --global-batch 0 the shares
are real-valued. The clairvoyant knows the speeds of each step before it.

The result: seconds of all steps; gain, what is saved of equal_seconds; captured, what is saved of what the clairvoyant
saves; resizes, the steps with other sizes than the step before; moved_share, the samples that another worker had in
the step before, as a share of all. --allocations writes the sizes that each step ran with, as step,worker,n; with
--global-batch 0 they are shares that sum to 1.

Policies: ` + strings.Join(kindNames(), ", ") + `.
The last of them are naive and for comparison: jobs do not take them. Any other is the plugin of that name in
--plugin-dir, whose answer each step waits for.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plugins, err := openPlugins(f.folder, newLog())
			if err != nil {
				return err
			}
			defer plugins.Close()
			if err := f.check(cmd.Flags().Changed, plugins); err != nil {
				return badInput(err)
			}
			return simulateSteps(f, plugins, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.trace, "trace", "", "`CSV` file of recorded step times")
	flags.StringVar(&f.synthetic, "synthetic", "", "`NAME` of a synthetic cluster: "+
		strings.Join(simulate.Synthetics(), ", "))
	flags.StringSliceVar(&f.policies, "policy", []string{"auto"}, "policies, by `LIST`, in the order of the output")
	flags.IntVar(&f.workers, "workers", 8, "workers of the synthetic cluster")
	flags.IntVar(&f.steps, "steps", 2000, "steps of the synthetic cluster")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the synthetic cluster")
	flags.IntVar(&f.job.GlobalBatch, "global-batch", 0, "samples of one step; 0 for real-valued shares")
	flags.IntVar(&f.job.Quantum, "quantum", 1, "batch sizes are multiples of it")
	flags.IntVar(&f.job.Lag, "lag", 1, "the allocation decided after step k holds from step k + lag")
	flags.IntVar(&f.job.Warmup, "warmup", 5, "so many first steps have equal sizes")
	flags.StringVar(&f.allocations, "allocations", "", "`FILE` to write the sizes of each step to; takes one policy")
	flags.StringVar(&f.plot, "plot", "", "PNG `FILE` to draw step times and batch sizes to")
	flags.StringVar(&f.output, "output", "text", "text or json")
	addPluginDir(cmd, &f.folder)
	return cmd
}

func kindNames() []string {
	var names []string
	for _, k := range sizing.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// check checks the flags against each other and the plugins; changed says which ones were given.
func (f *stepsFlags) check(changed func(string) bool, plugins *plugin.Folder) error {
	switch {
	case changed("trace") == changed("synthetic"):
		return errors.New("--trace, --synthetic: give one of the two")
	case changed("trace") && (changed("workers") || changed("steps")):
		return errors.New("--workers, --steps: make a synthetic trace; give them with --synthetic only")
	case changed("synthetic") && !slices.Contains(simulate.Synthetics(), f.synthetic):
		return fmt.Errorf("--synthetic: unknown %q; give one of %s", f.synthetic,
			strings.Join(simulate.Synthetics(), ", "))
	case f.workers < 1:
		return fmt.Errorf("--workers: %d is below 1", f.workers)
	case f.steps < 1:
		return fmt.Errorf("--steps: %d is below 1", f.steps)
	case f.job.GlobalBatch < 0:
		return fmt.Errorf("--global-batch: %d is below 0", f.job.GlobalBatch)
	case f.job.Quantum < 1:
		return fmt.Errorf("--quantum: %d is below 1", f.job.Quantum)
	case f.job.GlobalBatch == 0 && f.job.Quantum > 1:
		return errors.New("--quantum: real-valued shares have none; give --global-batch as well")
	case f.job.Lag < 1:
		return fmt.Errorf("--lag: %d is below 1", f.job.Lag)
	case f.job.Warmup < 0:
		return fmt.Errorf("--warmup: %d is below 0", f.job.Warmup)
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("--output: unknown form %q; give text or json", f.output)
	case f.allocations != "" && len(f.policies) != 1:
		return fmt.Errorf("--allocations: holds one policy, not %d; give --policy with one", len(f.policies))
	}
	known := kindNames()
	for _, name := range f.policies {
		if slices.Contains(known, name) {
			continue
		}
		if _, err := policyPlugin(plugins, name, kindNames()); err != nil {
			return err
		}
		known = append(known, name)
	}
	return checkPolicies(f.policies, known)
}

// checkPolicies wants some of the known policies, each once.
func checkPolicies(policies, known []string) error {
	if len(policies) == 0 {
		return errors.New("--policy: empty; give some of " + strings.Join(known, ", "))
	}
	for i, name := range policies {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--policy: unknown policy %q; give some of %s", name, strings.Join(known, ", "))
		}
		if slices.Contains(policies[:i], name) {
			return fmt.Errorf("--policy: %s is given twice", name)
		}
	}
	return nil
}

// simulateSteps replays one policy after the other and writes what came out.
func simulateSteps(f stepsFlags, plugins *plugin.Folder, stdin io.Reader, stdout io.Writer) error {
	t, err := f.read(stdin)
	if err == nil {
		err = checkOutputs(f.trace, map[string]string{"--allocations": f.allocations, "--plot": f.plot})
	}
	if err != nil {
		return badInput(err)
	}
	replays, err := f.replay(t, plugins)
	if err != nil {
		return err
	}
	if f.allocations != "" {
		if err := f.writeAllocations(t, replays[1]); err != nil {
			return fmt.Errorf("--allocations: %w", err)
		}
	}
	if f.plot != "" {
		if err := drawSteps(f.plot, t, f.policies, replays[1:]); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	result := newStepsResult(f, t, replays)
	if f.output == "json" {
		return writeJSON(stdout, result)
	}
	return result.writeText(stdout)
}

// read reads or makes the trace.
func (f *stepsFlags) read(stdin io.Reader) (*simulate.Trace, error) {
	if f.synthetic != "" {
		t, err := simulate.Synthetic(f.synthetic, f.workers, f.steps, f.seed)
		if err != nil {
			return nil, fmt.Errorf("--synthetic: %w", err)
		}
		return t, nil
	}
	var t *simulate.Trace
	err := readFile("--trace", cmp.Or(f.trace, "-"), stdin, func(r io.Reader) (err error) {
		t, err = simulate.ReadTrace(r)
		return err
	})
	return t, err
}

// replay replays equal sizes, then one policy after the other.
func (f *stepsFlags) replay(t *simulate.Trace, plugins *plugin.Folder) ([]*simulate.Replay, error) {
	tick, done := progress("replaying", (1+len(f.policies))*len(t.Steps))
	defer done()
	var replays []*simulate.Replay
	for _, name := range append([]string{"equal"}, f.policies...) {
		r, err := f.run(t, name, plugins, tick)
		var nothingFits *sizing.InfeasibleError
		var failed *exitError
		switch {
		case errors.As(err, &failed):
			return nil, err
		case errors.As(err, &nothingFits):
			return nil, infeasible(err)
		case err != nil:
			return nil, badInput(err)
		}
		replays = append(replays, r)
	}
	return replays, nil
}

// run replays the trace under a policy, which is built in or a plugin's.
func (f *stepsFlags) run(
	t *simulate.Trace, name string, plugins *plugin.Folder, tick func(),
) (r *simulate.Replay, err error) {
	if kind, builtin := sizing.Named(name); builtin {
		return f.job.Run(t, kind.New, tick)
	}
	p, err := policyPlugin(plugins, name, kindNames())
	if err != nil {
		return nil, err
	}
	var asked *policy.Patient
	r, err = f.job.Run(t, func(problem sizing.Problem, start []int) (sizing.Policy, error) {
		asked, err = policy.NewPatient(p, problem, start)
		return asked, err
	}, tick)
	if err != nil {
		return nil, err
	}
	if err := asked.Close(); err != nil {
		return nil, unreachable(fmt.Errorf("policy %s failed: %w", name, err))
	}
	return r, nil
}
