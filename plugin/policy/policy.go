// Package policy holds the plugins of kind policy: those that size the batches of a job or place jobs on devices.
//
// Serve is for the plugin's main function, New and NewPlace for who asks it. What a plugin answers is checked by the
// same invariants as what is built in: batch sizes are multiples of the quantum within the limits and sum to the global
// batch, a plan's devices are there and given to one job at a time. A plugin that dies, hangs or answers otherwise is
// replaced, for the job or the plan at hand, by the policy that is built in.
package policy

import (
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/plugin"
	policyv1 "github.com/evenstep/evenstep/plugin/policy/v1"
)

// Policy is what a plugin offers.
type Policy struct {
	Version string // its own
	// Size makes the policy of one job, as the constructors in package sizing do: problem and sizes have been checked,
	// curves it has none. Calls come at the same time, those of one policy's Step one at a time.
	// Nil where the plugin sizes no batches.
	Size sizing.Constructor
	// Place plans the jobs of a problem, which has been checked: Job, StartSeconds and Shares of each that can run. Calls
	// come at the same time. Nil where the plugin places no jobs.
	Place func(p *placement.Problem) ([]placement.Placed, error)
}

// Serve makes a plugin of the process: it serves the policy until evenstep ends it.
func Serve(p Policy) {
	plugin.Serve(plugin.Policy, func(s *grpc.Server) { policyv1.RegisterPolicyServer(s, &server{policy: p}) })
}
