package nomad

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/evenstep/evenstep/core/reconcile"
)

// Scheduler is Nomad for reconcile. It remembers what it has seen, so as not to ask again for what did not change, and
// nothing that Nomad does not know.
type Scheduler struct {
	Options
	client    *api.Client
	namespace string // * for all
	found     bool   // it is there, as far as is known
	lease     lease
	seen      seen
	watch     watch
	view      *view
	refusals  map[key]refusals
	foreign   map[key]uint64 // see sweep
}

// Options are what the administrator said; the zero value is for commands that only look.
type Options struct {
	HoldLimit time.Duration // how long a job may be held while nobody attends to it
	Core      string        // the core's address for the tasks of jobs; empty for one of their own
	// Steer takes the lease with each snapshot: only who has it may apply updates. LeaseTime is how long it lasts.
	Steer     bool
	LeaseTime time.Duration
}

// New is for Nomad as its environment variables say: NOMAD_ADDR, NOMAD_NAMESPACE (* for all), NOMAD_TOKEN and others.
func New(o Options) (*Scheduler, error) {
	client, config, err := connect()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{Options: o, client: client, namespace: config.Namespace, refusals: map[key]refusals{}}
	if s.namespace == "" {
		s.namespace = api.DefaultNamespace
	}
	return s, nil
}

// name is a job's name towards users: its id, after the namespace where there are several.
func (s *Scheduler) name(k key) string {
	if s.namespace == api.AllNamespacesNamespace {
		return k.namespace + "/" + k.id
	}
	return k.id
}

// Snapshot looks at jobs, nodes and allocations.
func (s *Scheduler) Snapshot(ctx context.Context) (*reconcile.Snapshot, error) {
	if err := s.findNamespace(ctx); err != nil {
		return nil, err
	}
	if err := s.attend(ctx); err != nil {
		return nil, err
	}
	v, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range v.jobs {
		j.givenUp = s.giveUp(j, v.now)
	}
	maps.DeleteFunc(s.refusals, func(k key, _ refusals) bool { return s.seen.specs[k] == nil })
	s.view = v
	return v.snapshot(), nil
}

// findNamespace finds out, once, that Nomad has no such namespace: of one that is not there it lists no jobs. Whatever
// else is wrong shows in what is asked next.
func (s *Scheduler) findNamespace(ctx context.Context) error {
	if s.found || s.namespace == api.AllNamespacesNamespace {
		return nil
	}
	err := s.get(ctx, "/v1/namespace/"+url.PathEscape(s.namespace), "")
	if notFound(err) {
		return fmt.Errorf("nomad has no namespace %.40q; see NOMAD_NAMESPACE", s.namespace)
	}
	s.found = err == nil || refused(err, http.StatusForbidden)
	return nil
}

// Request is one write to Nomad.
type Request struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Namespace string `json:"namespace"`
	Body      any    `json:"body,omitempty"`
}

// change is an update of a job, ready to be made.
type change struct {
	job      *job
	variable *api.Variable // as it is now
	message  message
	spec     any
	source   any
	group    string
	most     uint64 // allocations that Nomad may add
	start    bool
}

// registration is the body of a request that registers a job or plans to.
type registration struct {
	Job            any
	EnforceIndex   bool
	JobModifyIndex uint64
	Submission     any `json:",omitempty"`
}

// prepare makes the change that an update of a job in the last snapshot is.
func (s *Scheduler) prepare(ctx context.Context, u reconcile.Update) (*change, error) {
	i := s.index(u.Job)
	if i < 0 {
		return nil, fmt.Errorf("job %s: not in the snapshot", u.Job)
	}
	j := s.view.jobs[i]
	c := &change{job: j, group: j.spec.TaskGroups[0].Name, source: s.source(ctx, j), start: u.Kind == reconcile.Start}
	path, err := variablePath(j.ID)
	if err == nil {
		c.variable, err = s.variable(ctx, j.Namespace, path)
		// Of a job that is held it says nothing yet; so its user may let it go without a word there.
		held := j.mark != nil && j.mark.held()
		if !c.start && held && refused(err, http.StatusForbidden) {
			c.variable, err = nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if !c.start {
		c.message = released(j, c.variable, u.Why)
		return c, s.prepareRelease(ctx, c)
	}
	m := &mark{plan: planID(), version: j.spec.Version + 1, count: j.count(), submitted: j.submitted()}
	n, _ := j.spec.need()
	m.distinct = !n.distinct() || j.mark != nil && j.mark.distinct
	for _, share := range u.Shares {
		m.nodes = append(m.nodes, s.view.idOf(share.Node))
	}
	c.most = uint64(len(m.nodes))
	c.message = placed(j, m, u, s.Core)
	c.spec, err = j.spec.with(m, len(m.nodes))
	return c, err
}

// prepareRelease takes the mark away, and the count with it where nothing was started yet: then Nomad may start as many
// as it likes, of a system job one on each node.
func (s *Scheduler) prepareRelease(ctx context.Context, c *change) (err error) {
	if !c.job.started() {
		c.most = math.MaxUint64
		c.spec, err = c.job.spec.with(nil, c.job.count())
		return err
	}
	all, err := s.allocationsOf(ctx, c.job)
	if err != nil {
		return err
	}
	missing := c.job.spec.count()
	for _, a := range all {
		runs := a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending
		ended := a.ClientStatus == api.AllocClientStatusComplete && c.job.spec.Type == api.JobTypeBatch
		if a.DesiredStatus == api.AllocDesiredStatusRun && (runs || ended) {
			missing--
		}
	}
	c.most = uint64(max(0, missing))
	c.spec, err = c.job.spec.with(nil, 0)
	return err
}

func planID() string { return strings.ToLower(rand.Text()[:8]) }

// Requests are the writes that an update of a job in the last snapshot is made of, but for the users' items in its
// Variable, which may be secrets.
func (s *Scheduler) Requests(ctx context.Context, u reconcile.Update) ([]Request, error) {
	c, err := s.prepare(ctx, u)
	if err != nil || u.Kind == reconcile.Hold {
		return nil, err
	}
	requests := c.requests()
	if v, is := requests[0].Body.(*api.Variable); is {
		for name := range v.Items {
			if !strings.HasPrefix(name, ours) {
				v.Items[name] = "(kept)"
			}
		}
	}
	return requests, nil
}

func (c *change) requests() (all []Request) {
	if c.variable != nil {
		all = append(all, carry(c.variable, c.message))
	}
	body := registration{c.spec, true, c.job.spec.JobModifyIndex, c.source}
	return append(all, Request{"PUT", "/v1/jobs", c.job.Namespace, body})
}

// Apply makes one update: the message for the tasks first, then the registration, which Nomad refuses when the job was
// changed meanwhile. Before both, Nomad is asked what the registration would do.
func (s *Scheduler) Apply(ctx context.Context, u reconcile.Update) error {
	if u.Kind == reconcile.Hold {
		return nil // a constraint holds until it is changed
	}
	if err := s.mayApply(); err != nil {
		return err
	}
	c, err := s.prepare(ctx, u)
	if err != nil {
		return err
	}
	if err := s.try(ctx, c); err != nil {
		s.noteRefusal(c, err)
		return err
	}
	// What was seen of the job is over, whatever comes of this, and the event that says so may be late.
	defer s.watch.set(func(w *watch) { w.changed.jobs = true })
	for i, r := range c.requests() {
		err := s.write(ctx, r.Path, r.Namespace, r.Body, nil)
		if err != nil && i > 0 {
			if e := s.takeBack(ctx, c); e != nil {
				err = fmt.Errorf("%w; and its Variable says what did not happen: %w", err, e)
			}
		}
		if err != nil {
			return err
		}
	}
	delete(s.refusals, c.job.key())
	return nil
}

// takeBack makes the Variable of a job that was not registered after all what it was.
func (s *Scheduler) takeBack(ctx context.Context, c *change) error {
	now, err := s.variable(ctx, c.variable.Namespace, c.variable.Path)
	if err != nil {
		return err
	}
	return s.say(ctx, now, carried(c.variable))
}

// try asks Nomad what the change would do, and refuses one that would do more than place what is missing.
func (s *Scheduler) try(ctx context.Context, c *change) error {
	var plan api.JobPlanResponse
	body := struct{ Job any }{c.spec}
	if err := s.write(ctx, jobPath(c.job.ID, "/plan"), c.job.Namespace, body, &plan); err != nil {
		return err
	}
	if plan.JobModifyIndex != c.job.spec.JobModifyIndex {
		return fmt.Errorf("job %s: changed by another meanwhile", c.job.name)
	}
	if plan.Annotations == nil {
		return fmt.Errorf("job %s: Nomad does not say what a change would do", c.job.name)
	}
	does, evicts := api.DesiredUpdates{}, len(plan.Annotations.PreemptedAllocs)
	for _, group := range plan.Annotations.DesiredTGUpdates {
		does.DestructiveUpdate += group.DestructiveUpdate
		does.Stop += group.Stop
		does.Place += group.Place
	}
	switch failed := plan.FailedTGAllocs[c.group]; {
	case does.DestructiveUpdate > 0 || does.Stop > 0:
		return fmt.Errorf("job %s: Nomad would replace %d of its allocations and stop %d", c.job.name,
			does.DestructiveUpdate, does.Stop)
	case evicts > 0:
		return fmt.Errorf("job %s: Nomad would evict %d allocations of others for it", c.job.name, evicts)
	case does.Place > c.most:
		return fmt.Errorf("job %s: Nomad would start %d allocations, not %d at most: some have ended", c.job.name,
			does.Place, c.most)
	case c.start && failed != nil:
		return fmt.Errorf("job %s: Nomad finds no place for it there: %s", c.job.name, reasons(failed))
	}
	return nil
}

// reasons are why Nomad places an allocation nowhere.
func reasons(m *api.AllocationMetric) string {
	var words []string
	for constraint, n := range m.ConstraintFiltered {
		words = append(words, fmt.Sprintf("%s excludes %d nodes", constraint, n))
	}
	for dimension, n := range m.DimensionExhausted {
		words = append(words, fmt.Sprintf("%s is exhausted on %d nodes", dimension, n))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// refusals are Nomad's of one job's starts, one after another.
type refusals struct {
	first, last time.Time
	why         string
}

func (s *Scheduler) noteRefusal(c *change, err error) {
	now, k := time.Now(), c.job.key()
	r, known := s.refusals[k]
	if !known || now.Sub(r.last) > patience {
		r.first = now
	}
	r.last, r.why = now, err.Error()
	if c.start {
		s.refusals[k] = r
	}
}

// giveUp says why a job that waits is let go, whatever a plan says of it; empty in general.
func (s *Scheduler) giveUp(j *job, now time.Time) string {
	if r, known := s.refusals[j.key()]; known && r.last.Sub(r.first) > s.HoldLimit {
		return fmt.Sprintf("Nomad has refused its nodes for %v: %s", s.HoldLimit, r.why)
	}
	if j.mark != nil && j.mark.held() {
		return s.abandoned(j)
	}
	return ""
}

// idOf is the id of a node by its name towards users.
func (v *view) idOf(name string) string {
	i := slices.IndexFunc(v.nodes, func(n *node) bool { return n.name == name })
	return v.nodes[i].ID
}
