package main

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/plugin"
	external "github.com/evenstep/evenstep/plugin/policy"
)

func newPlaceCommand() *cobra.Command {
	var policy, profiles, folder string
	var explain bool
	cmd := &cobra.Command{
		Use:   "place [FILE]",
		Short: "Place jobs on devices so that they complete soonest on average",
		Long: `Place solves one instance of multi-job placement, JSON in, JSON out. FILE absent or - is stdin:

  {"devices":[{"node":"n1","type":"v100","count":4,"memory_bytes":17179869184}],
   "jobs":[{"id":"j1","remaining_samples":9e7,"global_batch":1024,"samples_per_second":{"v100":700,"k80":90},
            "workers":{"min":1,"max":8},"allreduce_bytes":1e8,"types":"mixed"}],
   "bandwidth_bytes_per_second":1e9,"deadline_milliseconds":1000,"seed":1}

A job on K devices runs for remaining/(sum of their speeds) + remaining/global_batch * 2(K-1)*allreduce/(K*bandwidth).
It cannot run on a type whose speed is missing or 0. Optional for a job: workers (1 to all), allreduce_bytes (0), types
(mixed; single: all devices of one type), memory_bytes per worker, nodes that it may run on, weight (1), current
([{"node","type","count"}]) with restart_seconds for running elsewhere (0), waited_seconds (0; who has waited a day goes
first), workload in place of samples_per_second: then the profiles say how fast it is, see evenstep profiles, and the
output where each number came from. deadline_milliseconds 0, the default, is none; budget bounds the search's work instead.

The model is static when all minimums fit at once: every job starts now and holds its devices to the end. Else it is
queue: jobs also wait. lower_bound_seconds is below the weighted mean of every schedule of that model, and gap says how
far above it the plan is. Jobs that can never run here are listed as impossible and count in neither; exit 3 when there are no
others. The same input, seed and budget give the same plan wherever complete is true: the deadline did not cut the search.

Policy auto is the best that we have; paper the published pipeline, for comparison; exact finds the optimum, or
says that the problem is too large. Any other is asked of the plugin of that name in --plugin-dir; where its plan is none,
the log says why, and the output has that of auto. --explain writes the plan in words and as a picture to stderr.`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := newLog()
			plugins, err := openPlugins(folder, log)
			if err != nil {
				return err
			}
			defer plugins.Close()
			if !slices.Contains(placement.Policies, policy) {
				if _, err := policyPlugin(plugins, policy, placement.Policies); err != nil {
					return badInput(err)
				}
			}
			var in placementInput
			if err := readInput(args, cmd.InOrStdin(), &in); err != nil {
				return badInput(err)
			}
			problem, err := in.problem()
			if err != nil {
				return badInput(err)
			}
			sources, err := in.profiled(problem, profiles)
			if err != nil {
				return err
			}
			begin := time.Now()
			place := external.NewPlace(plugins.OfKind(plugin.Policy), placement.Place, log)
			plan, err := place(problem, policy, in.search(begin))
			if err != nil {
				return badInput(err)
			}
			if explain {
				explainPlan(cmd.ErrOrStderr(), problem, plan)
			}
			if err := writeJSON(cmd.OutOrStdout(), placeOutputOf(problem, plan, sources, time.Since(begin))); err != nil {
				return err
			}
			if len(plan.Placed) == 0 {
				return infeasible(errors.New("no job can ever run on these devices; see impossible"))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "auto", "auto, paper, exact or the name of a plugin")
	cmd.Flags().StringVar(&profiles, "profiles", "", "`FILE` of profiles, for jobs that name a workload")
	addPluginDir(cmd, &folder)
	cmd.Flags().BoolVar(&explain, "explain", false, "write the plan in words and as a picture to stderr")
	return cmd
}

// search bounds the search by the budget and the deadline.
func (in *placementInput) search(begin time.Time) placement.Search {
	s := placement.Search{Budget: int(in.Budget.value)}
	if ms := float64(in.DeadlineMilliseconds.value); ms > 0 {
		s.Stop = func() bool { return time.Since(begin).Seconds() >= ms/1000 }
	}
	return s
}
