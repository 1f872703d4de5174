package nomad

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
)

// A message is what a job's tasks are to know, and why it was let go: items of the Variable nomad/jobs/JOB, which Nomad
// lets them read. Users may keep items of their own there; ours begin with evenstep_.
//
//	evenstep_plan          the plan's id, as in the constraint
//	evenstep_run_id        the name of the rendezvous
//	evenstep_nodes         how many allocations the plan gives the job
//	evenstep_workload, evenstep_global_batch, evenstep_policy    the user's words
//	evenstep_core          the address of the core, for its tasks
//	evenstep_batch_sizes   first batch sizes of all workers in rank order, with commas
//	evenstep_node_rank_ID  the place of the allocation on the node with that id in that order, from 0
//	evenstep_released      why it was let go to Nomad's own placement
type message map[string]string

const (
	ours     = "evenstep_"
	jobsPath = "nomad/jobs/"
)

// pathForm is what Nomad takes as the path of a Variable.
var pathForm = regexp.MustCompile(`^[a-zA-Z0-9-_~/]{1,128}$`)

// variablePath is where a job's message is.
func variablePath(job string) (string, error) {
	path := jobsPath + job
	if !pathForm.MatchString(path) {
		return "", errors.New("its id cannot be a Variable's path; give it an id of at most 117 of A-Z a-z 0-9 - _ ~ /")
	}
	return path, nil
}

// wordsOf are the user's, for the tasks.
func wordsOf(j *job) message {
	r, err := request.Parse(j.Meta[metaKey])
	if err != nil {
		return message{}
	}
	said := message{ours + "workload": r.Workload, ours + "global_batch": strconv.Itoa(r.GlobalBatch)}
	if r.Policy != "" {
		said[ours+"policy"] = r.Policy
	}
	return said
}

// released is the message of a job that is let go. One that has started goes on under the name and with the count that
// it has, and without sizes, since others may take the place of its nodes.
func released(j *job, before *api.Variable, why string) message {
	said := wordsOf(j)
	said[ours+"released"] = why
	said[ours+"nodes"] = strconv.Itoa(j.count())
	if j.started() && before != nil {
		for _, name := range []string{ours + "plan", ours + "run_id", ours + "nodes", ours + "core"} {
			if text, is := before.Items[name]; is {
				said[name] = text
			}
		}
	}
	return said
}

// placed is the message of a job that gets its nodes. Allocations learn their place by their node, since Nomad gives
// out indices as it likes.
func placed(j *job, m *mark, u reconcile.Update, core string) message {
	said := wordsOf(j)
	said[ours+"plan"], said[ours+"run_id"], said[ours+"nodes"] = m.plan, j.ID+"-"+m.plan, strconv.Itoa(len(m.nodes))
	if core != "" {
		said[ours+"core"] = core
	}
	if len(u.BatchSizes) > 0 {
		said[ours+"batch_sizes"] = strings.Trim(strings.ReplaceAll(fmt.Sprint(u.BatchSizes), " ", ","), "[]")
	}
	for rank, id := range m.nodes {
		said[ours+"node_rank_"+id] = strconv.Itoa(rank)
	}
	return said
}

// variable reads a Variable; one that is not there is empty.
func (s *Scheduler) variable(ctx context.Context, namespace, path string) (*api.Variable, error) {
	v := &api.Variable{Namespace: namespace, Path: path}
	if err := s.query(ctx, "/v1/var/"+path, namespace, v); err != nil && !notFound(err) {
		return nil, err
	}
	return v, nil
}

// carry is the request that makes a Variable carry a message, and the items of others as they are.
func carry(v *api.Variable, said message) Request {
	items := api.VariableItems{}
	maps.Copy(items, said)
	for name, text := range v.Items {
		if !strings.HasPrefix(name, ours) {
			items[name] = text
		}
	}
	path := fmt.Sprintf("/v1/var/%s?cas=%d", v.Path, v.ModifyIndex)
	return Request{"PUT", path, v.Namespace, &api.Variable{Namespace: v.Namespace, Path: v.Path, Items: items}}
}

// say makes a Variable carry a message; one that would carry nothing at all is deleted.
func (s *Scheduler) say(ctx context.Context, v *api.Variable, said message) error {
	r := carry(v, said)
	if len(r.Body.(*api.Variable).Items) > 0 {
		return s.write(ctx, r.Path, r.Namespace, r.Body, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	_, err := s.client.Raw().Delete(r.Path, nil, (&api.WriteOptions{Namespace: r.Namespace}).WithContext(ctx))
	return answered(r.Path, err)
}

// carried is the message that a Variable carries.
func carried(v *api.Variable) message {
	said := message{}
	for name, text := range v.Items {
		if strings.HasPrefix(name, ours) {
			said[name] = text
		}
	}
	return said
}
