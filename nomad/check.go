package nomad

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
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
		return []Finding{Finding(fmt.Sprintf("the nodes cannot be read: %v", err))}
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
		if s.Short(j.ID) {
			found = append(found, Finding(fmt.Sprintf("job %s lacks an allocation: %s", j.ID, j.Unsteerable)))
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

// checkRights tries what a controller does, in ways that change nothing: a plan of a job, and compare-and-set with an
// index that nothing has.
func (s *Scheduler) checkRights(ctx context.Context) (found []Finding) {
	namespace := s.namespace
	if namespace == api.AllNamespacesNamespace {
		namespace = api.DefaultNamespace
	}
	all := api.AllNamespacesNamespace
	get := func(path, namespace string) error {
		var out json.RawMessage
		return s.query(ctx, path, namespace, &out)
	}
	set := func(path, namespace string) error {
		v := api.Variable{Namespace: namespace, Path: path, Items: api.VariableItems{"evenstep": "check"}}
		err := s.write(ctx, "/v1/var/"+path+"?cas=1", namespace, v, nil)
		if refused(err, http.StatusConflict) {
			return nil
		}
		return err
	}
	const ofJob = jobsPath + "evenstep-check"
	probe := api.NewBatchJob("evenstep-check", "evenstep-check", "global", 50).AddTaskGroup(
		api.NewTaskGroup("none", 0).AddTask(api.NewTask("none", "raw_exec").SetConfig("command", "/bin/true")))
	probe.Namespace = &namespace
	for _, right := range []struct {
		what, needs string
		err         error
	}{
		{"jobs cannot be listed", "list-jobs", get("/v1/jobs?meta=true", s.namespace)},
		{"allocations cannot be listed", "read-job", get("/v1/allocations?filter="+`ClientStatus+==+"pending"`, all)},
		{"jobs cannot be registered", "submit-job",
			s.write(ctx, jobPath(*probe.ID, "/plan"), namespace, map[string]any{"Job": probe}, nil)},
		{"Variables of jobs cannot be listed", "list of nomad/jobs/*", get("/v1/vars?prefix="+jobsPath, s.namespace)},
		{"a job's Variable cannot be read", "read of nomad/jobs/*", ignoreAbsent(get("/v1/var/"+ofJob, namespace))},
		{"a job's Variable cannot be written", "write of nomad/jobs/*", set(ofJob, namespace)},
		{"the lease cannot be read", "read of " + leasePath, ignoreAbsent(get("/v1/var/"+leasePath, leaseNamespace))},
		{"the lease cannot be written", "write of " + leasePath, set(leasePath, leaseNamespace)},
	} {
		if right.err != nil {
			found = append(found, Finding(fmt.Sprintf("%s: %v; the policy needs %s", right.what, right.err, right.needs)))
		}
	}
	return found
}

func ignoreAbsent(err error) error {
	if notFound(err) {
		return nil
	}
	return err
}

// checkPlugins looks into the plugin_dir of the agent that was asked, where that is on this host: Nomad starts each
// file in there, and does not start itself where one is no plugin of Nomad's.
func (s *Scheduler) checkPlugins(ctx context.Context) (found []Finding) {
	var self struct {
		Config struct{ PluginDir string }
	}
	if err := s.query(ctx, "/v1/agent/self", "", &self); err != nil || self.Config.PluginDir == "" {
		return nil // it takes the right to read agents, which a controller has no use for
	}
	files, _ := filepath.Glob(filepath.Join(self.Config.PluginDir, "evenstep*"))
	for _, file := range files {
		if name := filepath.Base(file); name != "evenstep-device" {
			found = append(found, Finding(file+" is no plugin of Nomad's, which does not start with it: move it elsewhere"))
		}
	}
	return found
}
