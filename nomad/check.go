package nomad

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
)

// Finding is something that is not right with an installation.
type Finding string

// Check looks at the installation with this environment's token: may it read and write what the controller does, does a
// controller run, are there devices to place jobs on, and does Nomad's plugin_dir hold what it must not?
func Check(ctx context.Context) []Finding {
	s, err := New(Options{})
	if err != nil {
		return []Finding{Finding(err.Error())}
	}
	if err := s.seeNodes(ctx); err != nil {
		return []Finding{Finding(fmt.Sprintf("the nodes cannot be read: %v; see NOMAD_ADDR, NOMAD_REGION and NOMAD_TOKEN, "+
			"whose policy needs node read", err))}
	}
	nodes := slices.SortedFunc(maps.Values(s.seen.nodes), func(a, b *api.Node) int {
		return strings.Compare(a.Name, b.Name)
	})
	found := slices.Concat(checkNodes(nodes), s.checkRights(ctx))
	return slices.Concat(found, s.checkJobs(ctx), s.checkPlugins(ctx))
}

// checkJobs finds jobs that nobody helps. What keeps it from looking at them is among the rights.
func (s *Scheduler) checkJobs(ctx context.Context) (found []Finding) {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return nil
	}
	if s.Unattended() {
		found = append(found, "no controller runs: jobs wait until one does, or evenstep nomad release lets them go")
	}
	for _, j := range snapshot.Jobs {
		if needs := s.Lacks(&j); needs != "" {
			found = append(found, Finding(fmt.Sprintf("job %s lacks an allocation: %s", j.ID, needs)))
		}
	}
	return found
}

// oldest is the first version of Nomad's that Evenstep is known to work with: nodes have had pools since.
var oldest = version.Must(version.NewVersion("1.6.0"))

func checkNodes(nodes []*api.Node) (found []Finding) {
	add := func(format string, args ...any) { found = append(found, Finding(fmt.Sprintf(format, args...))) }
	devices := 0
	for _, n := range nodes {
		if v, err := version.NewVersion(n.Attributes["nomad.version"]); err == nil && v.Core().LessThan(oldest) {
			add("node %s runs Nomad %s; Evenstep is for 1.6 and later", n.Name, v)
		}
		if n.Meta[typeMeta] != "" {
			devices++ // it is meant to train on its CPU
		}
		if n.NodeResources == nil {
			continue
		}
		vendors := map[string]string{} // by model
		for _, d := range n.NodeResources.Devices {
			devices += len(d.Instances)
			if before, twice := vendors[d.Name]; twice {
				add("node %s shows its %s twice, as %s and as %s/%s: Nomad may give one to two jobs; disable one of the plugins",
					n.Name, d.Name, before, d.Vendor, d.Type)
			}
			vendors[d.Name] = d.Vendor + "/" + d.Type
		}
	}
	switch {
	case len(nodes) == 0:
		add("there are no nodes")
	case devices == 0:
		add("no node has devices; see docs/nomad-device.md, or set evenstep_type in the meta of clients whose CPUs are " +
			"to train")
	}
	return found
}

// right is something that the token may or may not do.
type right struct {
	what, needs string
	err         error
}

// checkRights tries what a controller does, in ways that change nothing: a plan of a job, and compare-and-set with an
// index that nothing has.
func (s *Scheduler) checkRights(ctx context.Context) (found []Finding) {
	rights := []right{
		{"jobs cannot be listed", "list-jobs", s.get(ctx, "/v1/jobs?meta=true", s.namespace)},
		{"allocations cannot be listed", "read-job",
			s.get(ctx, "/v1/allocations?filter="+`ClientStatus+==+"pending"`, api.AllNamespacesNamespace)},
		{"Variables of jobs cannot be listed", "list of nomad/jobs/*", s.get(ctx, "/v1/vars?prefix="+jobsPath, s.namespace)},
		{"the lease cannot be read", "read of " + leasePath, ignoreAbsent(s.get(ctx, "/v1/var/"+leasePath, leaseNamespace))},
		{"the lease cannot be written", "write of " + leasePath, s.set(ctx, leasePath, leaseNamespace)},
	}
	if s.namespace != api.AllNamespacesNamespace {
		rights = append(rights, s.rightsIn(ctx, s.namespace)...)
	} else {
		for _, namespace := range s.namespaces(ctx) {
			for _, r := range s.rightsIn(ctx, namespace) {
				r.what += " in namespace " + namespace
				rights = append(rights, r)
			}
		}
	}
	for _, right := range rights {
		if right.err != nil {
			found = append(found, Finding(fmt.Sprintf("%s: %v; the policy needs %s", right.what, right.err, right.needs)))
		}
	}
	if narrow := s.Narrow(ctx); narrow != "" {
		found = append(found, Finding(narrow))
	}
	return found
}

// rightsIn are those that placing jobs of a namespace takes.
func (s *Scheduler) rightsIn(ctx context.Context, namespace string) []right {
	const ofJob = jobsPath + "evenstep-check"
	probe := api.NewBatchJob("evenstep-check", "evenstep-check", "global", 50).AddTaskGroup(
		api.NewTaskGroup("none", 0).AddTask(api.NewTask("none", "raw_exec").SetConfig("command", "/bin/true")))
	probe.Namespace = &namespace
	return []right{
		{"jobs cannot be registered", "submit-job",
			s.write(ctx, jobPath(*probe.ID, "/plan"), namespace, map[string]any{"Job": probe}, nil)},
		{"a job's Variable cannot be read", "read of nomad/jobs/*", ignoreAbsent(s.get(ctx, "/v1/var/"+ofJob, namespace))},
		{"a job's Variable cannot be written", "write of nomad/jobs/*", s.set(ctx, ofJob, namespace)},
	}
}

func (s *Scheduler) get(ctx context.Context, path, namespace string) error {
	var out json.RawMessage
	return s.query(ctx, path, namespace, &out)
}

// set tries whether a Variable may be written, and does not write it.
func (s *Scheduler) set(ctx context.Context, path, namespace string) error {
	v := api.Variable{Namespace: namespace, Path: path, Items: api.VariableItems{"evenstep": "check"}}
	err := s.write(ctx, "/v1/var/"+path+"?cas=1", namespace, v, nil)
	if refused(err, http.StatusConflict) {
		return nil
	}
	return err
}

// namespaces are the names of those that the token sees.
func (s *Scheduler) namespaces(ctx context.Context) (names []string) {
	var list []*api.Namespace
	if err := s.query(ctx, "/v1/namespaces", "", &list); err != nil {
		return nil
	}
	for _, n := range list {
		names = append(names, n.Name)
	}
	return names
}

// Narrow says that the token sees some namespaces only, where all are to be steered; empty where it sees all.
func (s *Scheduler) Narrow(ctx context.Context) string {
	if s.namespace != api.AllNamespacesNamespace {
		return ""
	}
	// Who sees all sees one as well that is not there.
	if err := s.get(ctx, "/v1/jobs", "evenstep-"+planID()); !refused(err, http.StatusForbidden) {
		return ""
	}
	return fmt.Sprintf("NOMAD_NAMESPACE is *, and the token sees jobs in %s only: those of other namespaces wait unseen; "+
		"the policy needs a block for all, namespace \"*\"", strings.Join(s.namespaces(ctx), ", "))
}

func ignoreAbsent(err error) error {
	if notFound(err) {
		return nil
	}
	return err
}
