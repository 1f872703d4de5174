package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/simulate"
)

// clusterFlags are what the user said.
type clusterFlags struct {
	cluster                     string
	perNode                     int
	throughputs, table          string
	trace, sacct, workloads     string
	policies                    []string
	types                       string
	round, restart, lengthError float64
	noPreempt                   bool
	seed                        uint64
	plot, jobsOut, output       string
}

func newSimulateClusterCommand() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use:   "cluster --cluster v100=8,p100=16 --throughputs CSV --trace CSV | --sacct FILE --workloads CSV",
		Short: "Run a trace of jobs on a cluster under placement policies",
		Long: `Cluster runs a trace of jobs on devices of several types, under policies that decide in rounds who runs where.

Throughputs are measured speeds, a CSV with the columns job_type, scale_factor, worker_type and steps_per_s, and table
and consolidated where they are there. A trace is a CSV with the columns job_id, job_type, scale_factor (the devices of
the job, exactly), total_steps and arrival_s, and priority_weight where it is there. Others are ignored; - is stdin.

--sacct takes what sacct -P prints instead, with the fields JobID, JobName, Submit, Elapsed and AllocTRES, and State
where it is there. --workloads says what its jobs train: a CSV with the columns pattern (of the job's name, as in a
shell) and workload, and type (of its GPUs, where AllocTRES does not say). A job has the steps that it would have done
in its time at the speed in the throughputs.

Time passes as in Gavel's simulator: a job makes int(rate * round) whole steps in a round or what remains, its finish
within the round counts, its devices are free when the round ends, and who arrives waits for the next one. A job that
goes on after a pause or on other devices loses --restart-seconds. --types mixed lets a job have devices of two types,
each with the samples that it is worth: its speed is then a model, the sum of what each brings on its own type.

Policies: ` + strings.Join(clusterPolicyNames(), ", ") + `.
auto, auto-unknown and makespan are ours: the mean completion time where lengths are known and where they are not, and
the time until all are done. With --no-preempt who runs under auto runs to its end. The others are for comparison:
arrival order, shortest first and least attained service, type-blind and (-het) type-aware, and AlloX's matching, which
takes jobs of one device. --length-error makes the lengths that policies know wrong by a factor e^(SIGMA * normal).

The result: completion times from arrival to finish; utilization, the share of all device time until the end that jobs
ran; rho, a job's completion time over that in a fluid equal share of all devices: its largest value and, as jain,
Jain's index of all; preemptions, how often an unfinished job lost devices. --jobs-out writes when each job started and
finished, and its device seconds by type.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return badInput(err)
			}
			return simulateCluster(f, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.cluster, "cluster", "", "devices by type: `TYPE=COUNT,...`")
	flags.IntVar(&f.perNode, "per-node", 4, "devices of a node")
	flags.StringVar(&f.throughputs, "throughputs", "", "`CSV` file of measured speeds")
	flags.StringVar(&f.table, "table", "", "`NAME` of the table in it (default the only one, or physical_cluster)")
	flags.StringVar(&f.trace, "trace", "", "`CSV` file of jobs")
	flags.StringVar(&f.sacct, "sacct", "", "`FILE` with what sacct -P printed")
	flags.StringVar(&f.workloads, "workloads", "", "`CSV` file that says what Slurm's jobs train")
	flags.StringSliceVar(&f.policies, "policy", []string{"auto"}, "policies, by `LIST`, in the order of the output")
	flags.Float64Var(&f.round, "round", 360, "`SECONDS` between decisions")
	flags.BoolVar(&f.noPreempt, "no-preempt", false, "under auto, who runs runs to its end where it is")
	flags.StringVar(&f.types, "types", "single", "device types of one job: single or mixed")
	flags.Float64Var(&f.restart, "restart-seconds", 0, "what going on after a pause or elsewhere costs")
	flags.Float64Var(&f.lengthError, "length-error", 0, "`SIGMA` of the logarithm of believed over true length")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of what is drawn")
	flags.StringVar(&f.plot, "plot", "", "PNG `FILE` to draw completion times, utilization and devices to")
	flags.StringVar(&f.jobsOut, "jobs-out", "", "CSV `FILE` to write each job's times to")
	flags.StringVar(&f.output, "output", "text", "text or json")
	return cmd
}

func clusterPolicyNames() []string {
	var names []string
	for _, p := range simulate.ClusterPolicies() {
		names = append(names, p.Name)
	}
	return names
}

// check checks the flags against each other; changed says which ones were given.
func (f *clusterFlags) check(changed func(string) bool) error {
	switch {
	case !changed("cluster"):
		return errors.New("--cluster: missing; give types and counts: v100=8,p100=16")
	case f.throughputs == "":
		return errors.New("--throughputs: missing; give a CSV file")
	case changed("trace") == changed("sacct"):
		return errors.New("--trace, --sacct: give one of the two")
	case changed("sacct") != changed("workloads"):
		return errors.New("--sacct, --workloads: go together; give both or none")
	case f.types != "single" && f.types != "mixed":
		return fmt.Errorf("--types: unknown %q; give single or mixed", f.types)
	case !(f.round > 0 && !math.IsInf(f.round, 1)):
		return fmt.Errorf("--round: %v is not a number of seconds above 0", f.round)
	case !(f.restart >= 0 && !math.IsInf(f.restart, 1)):
		return fmt.Errorf("--restart-seconds: %v is not a number of at least 0", f.restart)
	case !(f.lengthError >= 0 && f.lengthError <= 10):
		return fmt.Errorf("--length-error: %v is not a number from 0 to 10", f.lengthError)
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("--output: unknown form %q; give text or json", f.output)
	case f.noPreempt && !slices.Contains(f.policies, "auto"):
		return errors.New("--no-preempt: is for policy auto, which is not in --policy")
	}
	return checkPolicies(f.policies, clusterPolicyNames())
}

// simulateCluster runs one policy after the other and writes what came out.
func simulateCluster(f clusterFlags, stdin io.Reader, stdout, stderr io.Writer) error {
	rounds, err := f.read(stdin, stderr)
	if err == nil {
		err = checkOutputs(f.trace, map[string]string{"--jobs-out": f.jobsOut, "--plot": f.plot})
	}
	if err != nil {
		return badInput(err)
	}
	if len(rounds.Jobs) == 0 {
		return infeasible(fmt.Errorf("no job can run on this cluster: all %d were dropped", len(rounds.Dropped)))
	}
	for _, policy := range f.policies {
		if err := rounds.Takes(policy); err != nil {
			return badInput(fmt.Errorf("--policy: %w", err))
		}
	}
	results, err := f.run(rounds)
	if err != nil {
		return err
	}
	if f.jobsOut != "" {
		if err := f.writeJobs(results); err != nil {
			return fmt.Errorf("--jobs-out: %w", err)
		}
	}
	if f.plot != "" {
		if err := drawCluster(f.plot, f.policies, results); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	out := newClusterResults(f.policies, results)
	if f.output == "json" {
		return writeJSON(stdout, out)
	}
	return f.writeText(stdout, rounds, out)
}

// read puts the trace on the cluster and says on stderr what was left out.
func (f *clusterFlags) read(stdin io.Reader, stderr io.Writer) (*simulate.Rounds, error) {
	cluster, err := simulate.ParseCluster(f.cluster, f.perNode)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	var speeds *simulate.Throughputs
	err = readFile("--throughputs", f.throughputs, stdin, func(r io.Reader) (err error) {
		speeds, err = simulate.ReadThroughputs(r, f.table)
		return err
	})
	if err != nil {
		return nil, err
	}
	jobs, dropped, err := f.readJobs(speeds, stdin)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	rules := simulate.Rules{RoundSeconds: f.round, RestartSeconds: f.restart, LengthError: f.lengthError,
		NoPreempt: f.noPreempt, Seed: f.seed, Clock: func() time.Duration { return time.Since(begin) }}
	if f.types == "mixed" {
		rules.Types = simulate.Balanced
	}
	rounds, err := simulate.NewRounds(cluster, speeds, jobs, rules)
	if err != nil {
		return nil, err
	}
	rounds.Dropped = append(dropped, rounds.Dropped...)
	f.tellDropped(stderr, speeds, rounds)
	return rounds, nil
}

func (f *clusterFlags) readJobs(speeds *simulate.Throughputs, stdin io.Reader) (jobs []simulate.ClusterJob,
	dropped []simulate.DroppedJob, err error) {
	if f.sacct == "" {
		err = readFile("--trace", f.trace, stdin, func(r io.Reader) (err error) {
			jobs, err = simulate.ReadJobs(r)
			return err
		})
		return jobs, nil, err
	}
	var rules []simulate.WorkloadRule
	err = readFile("--workloads", f.workloads, stdin, func(r io.Reader) (err error) {
		rules, err = simulate.ReadWorkloads(r)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	err = readFile("--sacct", f.sacct, stdin, func(r io.Reader) (err error) {
		jobs, dropped, err = simulate.ReadSacct(r, rules, speeds)
		return err
	})
	return jobs, dropped, err
}

// readFile reads the file that a flag names, or stdin for -.
func readFile(flag, path string, stdin io.Reader, read func(io.Reader) error) error {
	in := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		defer file.Close()
		in = file
	}
	if err := read(bufio.NewReader(in)); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// run runs one policy after the other.
func (f *clusterFlags) run(rounds *simulate.Rounds) ([]*simulate.ClusterResult, error) {
	tick, done := progress("simulating", len(f.policies)*len(rounds.Jobs))
	defer done()
	var results []*simulate.ClusterResult
	for _, name := range f.policies {
		ticked := 0
		r, err := rounds.Run(name, func(finished int) {
			for ; ticked < finished; ticked++ {
				tick()
			}
		})
		switch {
		case errors.Is(err, simulate.ErrNoProgress):
			return nil, infeasible(err)
		case err != nil:
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}
