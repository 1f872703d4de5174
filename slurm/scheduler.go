package slurm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/evenstep/evenstep/core/reconcile"
)

// Scheduler is Slurm for reconcile. It remembers what the last snapshot saw, and nothing that Slurm does not.
type Scheduler struct {
	HoldLimit time.Duration
	version   version
	view      *view
}

// commandTime bounds one command of Slurm's.
const commandTime = 30 * time.Second

// states are those of jobs that wait or hold devices.
const states = "PENDING,RUNNING,CONFIGURING,COMPLETING,SUSPENDED"

// mostDetails bounds the jobs that one snapshot looks at closely: the first in the queue.
const mostDetails = 500

// command runs a command of Slurm's and returns its stdout. An error is one line that says what Slurm said.
func command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = errors.New(strings.ReplaceAll(said, "\n", "; "))
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(out), nil
}

// environment is ours but for what would change the format of what the commands print.
func environment() []string {
	kept := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "SQUEUE_") || strings.HasPrefix(e, "SCONTROL_") || strings.HasPrefix(e, "SLURM_TIME_FORMAT=")
	})
	return append(kept, "TZ=UTC", "LC_ALL=C")
}

// Snapshot looks at the queue and the nodes.
func (s *Scheduler) Snapshot(ctx context.Context) (*reconcile.Snapshot, error) {
	if s.version == (version{}) {
		text, err := command(ctx, "scontrol", "--version")
		if err != nil {
			return nil, err
		}
		if s.version, err = parseVersion(text); err != nil {
			return nil, err
		}
	}
	v, err := look(ctx)
	if err != nil {
		return nil, err
	}
	s.view = v
	return v.snapshot(), nil
}

// look asks Slurm for all that a view needs.
func look(ctx context.Context) (*view, error) {
	v := &view{now: time.Now().UTC(), details: map[string]detail{}}
	mark := "|" + rand.Text() + "|"
	text, err := command(ctx, "squeue", "-a", "-h", "-r", "-t", states, "-o", format(mark))
	if err == nil {
		v.queue, err = parseQueue(text, mark)
	}
	if err != nil {
		return nil, err
	}
	if text, err = command(ctx, "scontrol", "-a", "-d", "show", "node", "-o"); err != nil {
		return nil, err
	}
	v.nodes = parseNodes(text)
	if text, err = command(ctx, "scontrol", "-a", "show", "partition", "-o"); err == nil {
		v.partitions, err = parsePartitions(text)
	}
	if err != nil {
		return nil, err
	}
	if text, err = command(ctx, "scontrol", "show", "reservation", "-o"); err == nil {
		v.reservations, err = parseReservations(text)
	}
	if err != nil {
		return nil, err
	}
	if text, err = command(ctx, "scontrol", "show", "config"); err != nil {
		return nil, err
	}
	v.countsMemory = strings.Contains(parseConfig(text)["SelectTypeParameters"], "MEMORY")
	return v, v.lookClosely(ctx)
}

// lookClosely asks for the details of our jobs that wait. A job that is gone by now has none.
func (v *view) lookClosely(ctx context.Context) error {
	for _, a := range v.ours() {
		if !a.waits() || len(v.details) >= mostDetails {
			continue
		}
		text, err := command(ctx, "scontrol", "show", "job", "-o", a.id)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			continue
		}
		if v.details[a.id], err = parseDetail(text); err != nil {
			return err
		}
	}
	return nil
}

// Apply makes one update by one call of scontrol.
func (s *Scheduler) Apply(ctx context.Context, u reconcile.Update) error {
	args, err := s.Arguments(u)
	if err != nil {
		return err
	}
	_, err = command(ctx, "scontrol", args...)
	return err
}

// Arguments are what scontrol is called with to make an update of a job in the last snapshot.
func (s *Scheduler) Arguments(u reconcile.Update) ([]string, error) {
	i := slices.IndexFunc(s.view.queue, func(e entry) bool { return e.id == u.Job })
	if i < 0 {
		return nil, fmt.Errorf("job %s: not in the snapshot", u.Job)
	}
	e := s.view.queue[i]
	r, note, _ := ParseComment(e.comment)
	args := []string{"update", "JobId=" + u.Job}
	switch u.Kind {
	case reconcile.Hold:
		return append(args, fmt.Sprintf("StartTime=now+%d", int(s.HoldLimit.Seconds()))), nil
	case reconcile.Start:
		if note.MaxNodes == 0 {
			note.Required = e.required
			note.MinNodes, note.MaxNodes = s.view.details[u.Job].minNodes, s.view.details[u.Job].maxNodes
		}
		note.Held, note.Sizes = false, u.BatchSizes
		var names []string
		for _, share := range u.Shares {
			names = append(names, share.Node)
		}
		comment := Comment(r, note)
		if len(comment) > maxComment {
			return nil, fmt.Errorf("job %s: a comment of %d bytes; Slurm takes %d", u.Job, len(comment), maxComment)
		}
		return append(args, fmt.Sprintf("NumNodes=%d-%d", len(names), len(names)), "ReqNodeList="+strings.Join(names, ","),
			"StartTime=now", "Comment="+comment), nil
	}
	if note.MaxNodes > 0 && s.version.clears() {
		// Not more than it has now: the owner may have written the note.
		now := s.view.details[u.Job]
		args = append(args, fmt.Sprintf("NumNodes=%d-%d", min(note.MinNodes, now.minNodes), now.maxNodes),
			"ReqNodeList="+note.Required)
	}
	args = append(args, "StartTime=now")
	if r != nil {
		released := Comment(r, Note{Released: true})
		if len(released) <= maxComment {
			args = append(args, "Comment="+released)
		}
	}
	return args, nil
}
