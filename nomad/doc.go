// Package nomad steers Nomad's jobs from outside: it reads jobs, nodes and allocations through Nomad's HTTP API, and
// gives each job that asked for Evenstep the nodes of the plan by registering it anew with a constraint that names
// them.
//
// A job waits by such a constraint as well, one that no node satisfies. All that is remembered of a job stands in that
// constraint (see mark), and what its tasks are to know in a Variable that they may read (see message). Constraints are
// what Nomad changes in place: nothing here makes it replace a running allocation, and each registration is first asked
// of Nomad's own scheduler, as a plan, and given up where it would.
//
// Nothing in Nomad lets a constraint run out. So whoever runs finds the jobs that nobody attended to for the hold
// limit, and lets them go to Nomad's own placement.
//
// Jobs without the meta key evenstep are never touched, but for those that carry our hold, which nobody else would
// lift.
package nomad
