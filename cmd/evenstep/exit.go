package main

import "errors"

// exitError carries the exit code of a failure. An error without one is our own failure and exits 1.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// badInput is a flag or an input that the user has to change.
func badInput(err error) error { return &exitError{2, err} }

// infeasible is a valid question without an answer.
func infeasible(err error) error { return &exitError{3, err} }

// unreachable is a peer that cannot be reached or refuses, or a resource that another holds.
func unreachable(err error) error { return &exitError{4, err} }

// exitCode is the process's exit code for what a command returned.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	}
	return 1
}
