// Package policy holds the plugins of kind policy: those that size the batches of a job or place jobs on devices.
//
// Serve is for the plugin's main function, New for who asks it. What a plugin answers is checked by the same invariants
// as what is built in: batch sizes are multiples of the quantum within the limits and sum to the global batch. A plugin
// that dies, hangs or answers otherwise is replaced, for the job at hand, by a policy that is built in.
package policy

import (
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/plugin"
	policyv1 "github.com/evenstep/evenstep/plugin/policy/v1"
)

// Policy is what a plugin offers.
type Policy struct {
	Version string // its own
	// Size makes the policy of one job, as the constructors in package sizing do: problem and sizes have been checked,
	// curves it has none. Calls come at the same time, those of one policy's Step one at a time.
	Size sizing.Constructor
}

// Serve makes a plugin of the process: it serves the policy until evenstep ends it.
func Serve(p Policy) {
	plugin.Serve(plugin.Policy, func(s *grpc.Server) { policyv1.RegisterPolicyServer(s, &server{policy: p}) })
}
