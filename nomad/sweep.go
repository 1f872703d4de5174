package nomad

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// sweep takes back the messages of jobs that Nomad does not know any more. It is a controller's; what cannot be taken
// back is tried again later.
func (s *Scheduler) sweep(ctx context.Context) error {
	var list []*api.VariableMetadata
	if err := s.query(ctx, "/v1/vars?prefix="+jobsPath, s.namespace, &list); err != nil {
		return err
	}
	foreign := map[key]uint64{} // Variables without a job that are none of ours, and which version of each
	for _, meta := range list {
		k := key{meta.Namespace, meta.Path}
		known := slices.ContainsFunc(s.seen.stubs, func(one *stub) bool {
			return one.key() == key{meta.Namespace, strings.TrimPrefix(meta.Path, jobsPath)}
		})
		if known {
			continue
		}
		if s.foreign[k] == meta.ModifyIndex {
			foreign[k] = meta.ModifyIndex
			continue
		}
		v, err := s.variable(ctx, meta.Namespace, meta.Path)
		if err != nil {
			return err
		}
		if len(carried(v)) == 0 {
			foreign[k] = v.ModifyIndex
			continue
		}
		if err := s.say(ctx, v, nil); err != nil {
			return err
		}
	}
	s.foreign = foreign
	return nil
}
