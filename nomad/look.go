package nomad

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// seen is what was seen of Nomad last. What the event stream says has changed since is asked for again.
type seen struct {
	at     time.Time // of the last time that all was asked for; zero for never
	stubs  []*stub
	specs  map[key]*spec
	nodes  map[string]*api.Node
	allocs []*api.AllocationListStub
	evals  []*api.Evaluation
	passed map[key]uint64 // jobs that are none of ours or not any more, and the version of each that was seen to be so
}

// allAgain is how old what was seen may become, whatever the event stream says.
const allAgain = time.Minute

// topics are what may have changed: nodes, or jobs with all that comes of them. A job that ends, and an evaluation that
// blocks no more, show in events of allocations alone.
type topics struct{ jobs, nodes bool }

var everything = topics{true, true}

// live are allocations that hold what they were given.
const liveFilter = `ClientStatus == "pending" or ClientStatus == "running" or ClientStatus == "unknown"`

// look asks for what may have changed, and makes a view of it all.
func (s *Scheduler) look(ctx context.Context) (*view, error) {
	changed := s.watch.news()
	if time.Since(s.seen.at) > allAgain {
		changed = everything
	}
	if err := s.see(ctx, changed); err != nil {
		s.seen.at = time.Time{}
		return nil, err
	}
	now := time.Now()
	if changed == everything && s.Steer {
		_ = s.sweep(ctx) // what it could not take back waits for the next time, and check says whether it may
	}
	if changed == everything {
		s.seen.at = now
	}
	v := &view{now: now, holdLimit: s.HoldLimit, crowded: map[string]bool{}}
	v.setNodes(slices.Collect(maps.Values(s.seen.nodes)))
	v.setAllocs(s.seen.allocs)
	for _, stub := range s.seen.stubs {
		if spec := s.seen.specs[stub.key()]; spec != nil {
			v.jobs = append(v.jobs, &job{stub: *stub, name: s.name(stub.key()), spec: spec, mark: spec.mark()})
		}
	}
	v.setLive()
	v.setBlocked(s.seen.evals, s.seen.stubs)
	if err := s.lookForEnded(ctx, v); err != nil {
		return nil, err
	}
	v.jobs = slices.DeleteFunc(v.jobs, s.isOver)
	return v, nil
}

// isOver says that a job is dead for good, and remembers it. One of which Nomad stopped all allocations looks the same
// to it, as does one of type sysbatch that is held.
func (s *Scheduler) isOver(j *job) bool {
	lost := j.stopped != nil && !j.ended
	if j.Status != "dead" || lost || j.mark != nil && j.mark.held() {
		return false
	}
	s.seen.passed[j.key()] = j.JobModifyIndex
	delete(s.seen.specs, j.key())
	return true
}

// see asks for what changed.
func (s *Scheduler) see(ctx context.Context, changed topics) error {
	if changed.nodes {
		if err := s.seeNodes(ctx); err != nil {
			return err
		}
	}
	if !changed.jobs {
		return nil
	}
	if err := s.seeJobs(ctx); err != nil {
		return err
	}
	// Others' allocations count as well, where the token lets us see them.
	all := api.AllNamespacesNamespace
	s.seen.allocs, s.seen.evals = nil, nil
	path := "/v1/allocations?resources=true&filter=" + url.QueryEscape(liveFilter)
	if err := s.query(ctx, path, all, &s.seen.allocs); err != nil {
		return err
	}
	return s.query(ctx, "/v1/evaluations?filter="+url.QueryEscape(`Status == "blocked"`), all, &s.seen.evals)
}

// seeNodes lists the nodes, and asks for those that changed.
func (s *Scheduler) seeNodes(ctx context.Context) error {
	var list []*api.NodeListStub
	if err := s.query(ctx, "/v1/nodes", "", &list); err != nil {
		return err
	}
	before := s.seen.nodes
	s.seen.nodes = map[string]*api.Node{}
	for _, stub := range list {
		n := before[stub.ID]
		if n == nil || n.ModifyIndex != stub.ModifyIndex {
			n = &api.Node{}
			if err := s.query(ctx, "/v1/node/"+stub.ID, "", n); notFound(err) {
				continue
			} else if err != nil {
				return err
			}
		}
		s.seen.nodes[stub.ID] = n
	}
	return nil
}

// seeJobs lists the jobs, and asks for those that changed and may be ours. What other jobs are started from (a periodic
// or parameterized one) is none itself.
func (s *Scheduler) seeJobs(ctx context.Context) error {
	s.seen.stubs = nil
	if err := s.query(ctx, "/v1/jobs?meta=true", s.namespace, &s.seen.stubs); err != nil {
		return err
	}
	before, passed := s.seen.specs, s.seen.passed
	s.seen.specs, s.seen.passed = map[key]*spec{}, map[key]uint64{}
	for _, stub := range s.seen.stubs {
		k := stub.key()
		parent := stub.Periodic || stub.ParameterizedJob && stub.ParentID == ""
		if parent || stub.Stop || !stub.asks() && !stub.mayBeHeld() {
			continue
		}
		if (stub.Status == "dead" || !stub.asks()) && passed[k] == stub.JobModifyIndex {
			s.seen.passed[k] = stub.JobModifyIndex
			continue
		}
		known := before[k]
		if known == nil || known.JobModifyIndex != stub.JobModifyIndex {
			known = &spec{}
			if err := s.query(ctx, jobPath(k.id, ""), k.namespace, known); notFound(err) {
				continue
			} else if err != nil {
				return err
			}
		}
		if !stub.asks() && known.mark() == nil {
			s.seen.passed[k] = stub.JobModifyIndex
			continue
		}
		s.seen.specs[k] = known
	}
	return nil
}

// asks says that the job asks for Evenstep.
func (s *stub) asks() bool {
	_, asks := s.Meta[metaKey]
	return asks
}

// mayBeHeld says that a job which does not ask for Evenstep may wait for it all the same: nobody else lifts our hold.
// One of type system is never pending to Nomad, and one of sysbatch not for long.
func (s *stub) mayBeHeld() bool {
	return s.Status == "pending" || s.Type == api.JobTypeSystem || s.Type == api.JobTypeSysbatch
}

// setLive gives the jobs their allocations.
func (v *view) setLive() {
	byKey := map[key]*job{}
	for _, j := range v.jobs {
		byKey[j.key()] = j
	}
	for _, a := range v.allocs {
		j := byKey[key{a.Namespace, a.JobID}]
		if j != nil && a.DesiredStatus == api.AllocDesiredStatusRun && (j.mark == nil || a.JobVersion >= j.mark.version) {
			j.live = append(j.live, a)
		}
	}
}

// setBlocked says which jobs Nomad finds no place for. Of ours that is worth knowing of those that were placed, of
// others because they queue for the same nodes.
func (v *view) setBlocked(evals []*api.Evaluation, stubs []*stub) {
	since := map[key]time.Time{}
	for _, e := range evals {
		since[key{e.Namespace, e.JobID}] = time.Unix(0, e.CreateTime)
	}
	for _, j := range v.jobs {
		if t := since[j.key()]; t.UnixNano() >= j.SubmitTime { // else it is of before the placement
			j.blocked = t
		}
		delete(since, j.key())
	}
	for _, stub := range stubs {
		if _, waits := since[stub.key()]; waits {
			v.crowded[stub.NodePool] = true
		}
	}
}

// lookForEnded asks what became of the allocations that placed jobs lack.
func (s *Scheduler) lookForEnded(ctx context.Context, v *view) error {
	for _, j := range v.jobs {
		if j.mark == nil || j.mark.held() || len(j.live) >= j.spec.count() {
			continue
		}
		all, err := s.allocationsOf(ctx, j)
		if err != nil {
			return err
		}
		j.ran = len(all) > 0
		j.setStopped(all)
	}
	return nil
}

// allocationsOf are a job's allocations, also those that ended; of one that was placed those since.
func (s *Scheduler) allocationsOf(ctx context.Context, j *job) (all []*api.AllocationListStub, err error) {
	if err := s.query(ctx, jobPath(j.ID, "/allocations"), j.Namespace, &all); err != nil && !notFound(err) {
		return nil, err
	}
	before := func(a *api.AllocationListStub) bool { return j.mark != nil && a.JobVersion < j.mark.version }
	return slices.DeleteFunc(all, before), nil
}
