package main

import (
	"io"

	"github.com/go-json-experiment/json"
)

// writeJSON writes one value on one line, the names of maps in order.
func writeJSON(w io.Writer, value any) error {
	line, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
