package main

import (
	"errors"
	"fmt"
	"testing"
)

func TestExitCode(t *testing.T) {
	err := errors.New("broken")
	for want, err := range map[int]error{
		0: nil,
		1: err,
		2: badInput(err),
		3: fmt.Errorf("wrapped: %w", infeasible(err)),
		4: unreachable(err),
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v exits %d, want %d", err, got, want)
		}
	}
}
