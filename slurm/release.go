package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/evenstep/evenstep/core/reconcile"
)

// ErrNotWaiting is of a job that does not wait for Evenstep.
var ErrNotWaiting = errors.New("does not wait for Evenstep")

// Release leaves a job (all tasks of an array), or all jobs where the id is empty, to Slurm's own placement, for good. It returns the ids of those
// that waited for us.
func (s *Scheduler) Release(ctx context.Context, id string) ([]string, error) {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var released []string
	for _, j := range snapshot.Jobs {
		if id != "" && j.ID != id && !strings.HasPrefix(j.ID, id+"_") || !j.Held && j.State != reconcile.Named {
			continue
		}
		if err := s.Apply(ctx, reconcile.Update{Job: j.ID, Kind: reconcile.Release}); err != nil {
			return released, err
		}
		released = append(released, j.ID)
	}
	if id != "" && len(released) == 0 {
		return nil, fmt.Errorf("job %.40q: %w", id, ErrNotWaiting)
	}
	return released, nil
}
