package nomad

import "context"

// Finding is something that is not right with an installation.
type Finding string

// Check looks.
func Check(ctx context.Context) []Finding { return nil }
