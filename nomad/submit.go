package nomad

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/request"
)

// Submission is a job's specification that was found right.
type Submission struct {
	spec   *spec
	key    key
	source *api.JobSubmission // what Nomad's own pages show
}

// ErrRuns is of a job that has allocations: held, it would wait for their end, and where one of them is lost there would
// be no other.
var ErrRuns = errors.New("it has allocations, and would wait for their end; stop it first: nomad job stop")

// SpecError is of a specification that is not right.
type SpecError struct{ error }

// Unwrap gives what is not right.
func (e *SpecError) Unwrap() error { return e.error }

// Prepare makes a submission of a specification in HCL, which Nomad itself parses, or in JSON as `nomad job run
// -output` prints it. It refuses a job that does not ask for Evenstep, or asks for what is not steered.
func (s *Scheduler) Prepare(ctx context.Context, text []byte) (*Submission, error) {
	j, err := s.parse(ctx, text)
	if err != nil {
		return nil, err
	}
	if err := check(j.spec); err != nil {
		return nil, &SpecError{err}
	}
	return j, nil
}

// check says why a job would not be steered.
func check(j *spec) error {
	if _, asks := j.Meta[metaKey]; !asks {
		return errors.New("it does not ask for Evenstep; give meta { evenstep = \"workload=... global_batch=... " +
			"samples=...\" }")
	}
	if _, err := request.Parse(j.Meta[metaKey]); err != nil {
		return fmt.Errorf("meta evenstep: %w", err)
	}
	if _, why := j.need(); why != "" {
		return errors.New(why)
	}
	if j.Periodic != nil || j.ParameterizedJob != nil {
		return errors.New("it only starts other jobs, periodically or when dispatched, which Nomad lets nobody change well")
	}
	_, err := variablePath(j.ID)
	return err
}

func (s *Scheduler) parse(ctx context.Context, text []byte) (*Submission, error) {
	namespace := s.namespace
	if namespace == api.AllNamespacesNamespace {
		namespace = api.DefaultNamespace
	}
	j := &Submission{spec: &spec{}, source: &api.JobSubmission{Source: string(text), Format: "hcl2"}}
	hcl := api.JobsParseRequest{JobHCL: string(text)}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		var wrapped struct{ Job json.RawMessage }
		if err := json.Unmarshal(text, &wrapped); err != nil {
			return nil, &SpecError{err}
		}
		if wrapped.Job != nil {
			text = wrapped.Job
		}
		if err := json.Unmarshal(text, j.spec); err != nil {
			return nil, &SpecError{err}
		}
		j.source.Format = "json"
	} else if err := s.write(ctx, "/v1/jobs/parse", namespace, hcl, j.spec); refused(err, 400) {
		return nil, &SpecError{err}
	} else if err != nil {
		return nil, err
	}
	var own string
	if json.Unmarshal(j.spec.raw["Namespace"], &own) == nil && own != "" {
		namespace = own
	}
	j.spec.raw["Namespace"] = marshal(namespace)
	j.key = key{namespace, j.spec.ID}
	return j, nil
}

// Submit registers the job with a hold and returns its name. One that runs is left alone.
func (s *Scheduler) Submit(ctx context.Context, j *Submission) (string, error) {
	var now api.Job
	err := s.query(ctx, jobPath(j.key.id, ""), j.key.namespace, &now)
	if err != nil && !notFound(err) {
		return "", err
	}
	index := uint64(0)
	if err == nil && now.JobModifyIndex != nil {
		index = *now.JobModifyIndex
	}
	var live []*api.AllocationListStub
	if index > 0 {
		path := jobPath(j.key.id, "/allocations?all=true")
		if err := s.query(ctx, path, j.key.namespace, &live); err != nil {
			return "", err
		}
	}
	for _, a := range live {
		if a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning {
			return "", fmt.Errorf("job %s: %w %s", j.key.id, ErrRuns, j.key.id)
		}
	}
	held, err := j.spec.with(&mark{}, 0)
	if err != nil {
		return "", err
	}
	body := registration{held, true, index, j.source}
	return s.name(j.key), s.write(ctx, "/v1/jobs", j.key.namespace, body, nil)
}

// source is what the user wrote of a job, so that Nomad's own pages go on to show it; nil where Nomad does not have it.
func (s *Scheduler) source(ctx context.Context, j *job) any {
	var source json.RawMessage
	path := jobPath(j.ID, "/submission?version="+url.QueryEscape(fmt.Sprint(j.spec.Version)))
	if err := s.query(ctx, path, j.Namespace, &source); err != nil {
		return nil
	}
	return source
}
