// Command evenstep-scheduler-folder is a complete scheduler plugin, for a batch scheduler that is a folder: queue, beside the
// plugin. It starts no process: it shows what such a plugin has to say, and what it is told.
//
//	go build -o plugins/evenstep-scheduler-folder ./examples/scheduler-plugin
//	evenstep controller --scheduler folder --plugin-dir plugins --profiles profiles.json
//
// queue/nodes.json lists the devices: [{"node":"m1","type":"fast","total":1}]. Every other file is a job; its name without
// .json is its id: {"words":"workload=w global_batch=100 samples=1e6","min_nodes":1,"max_nodes":2,"starts":"TIME"}. When
// that time comes, the job starts by itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
	"github.com/evenstep/evenstep/plugin/scheduler"
)

func main() {
	executable, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scheduler.Serve("1.0.0", folder{filepath.Join(filepath.Dir(executable), "queue")})
}

// folder is the scheduler.
type folder struct{ path string }

// job is a file of it.
type job struct {
	Words    string    `json:"words"`
	MinNodes int       `json:"min_nodes"`
	MaxNodes int       `json:"max_nodes"`
	Starts   time.Time `json:"starts"` // by itself, or when it did

	Why        string            `json:"why,omitzero"` // what was done with it last
	On         []placement.Share `json:"on,omitzero"`  // where it runs
	BatchSizes []int             `json:"batch_sizes,omitzero"`
}

// Snapshot says what is there and what waits.
func (f folder) Snapshot(context.Context) (*reconcile.Snapshot, error) {
	var s reconcile.Snapshot
	if err := f.read("nodes", &s.Pools); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(f.path, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".json")
		if id == "nodes" {
			continue
		}
		var j job
		if err := f.read(id, &j); err != nil {
			return nil, err
		}
		s.Jobs = append(s.Jobs, j.seen(id))
	}
	return &s, nil
}

// seen is the job in evenstep's words. One that cannot be steered says why.
func (j *job) seen(id string) reconcile.Job {
	left := time.Until(j.Starts)
	s := reconcile.Job{ID: id, MinNodes: j.MinNodes, MaxNodes: j.MaxNodes, PerNode: 1, On: j.On}
	r, err := request.Parse(j.Words)
	switch {
	case err != nil:
		s.Unsteerable, s.Held = err.Error(), left > 0
	case len(j.On) > 0:
		s.Request, s.State, s.For = *r, reconcile.Running, max(0, -left)
	case left <= 0:
		s.Unsteerable = "it has started by itself"
	default:
		s.Request, s.Held, s.Lease = *r, true, left
	}
	return s
}

// Apply makes one update by one file, which appears whole or not at all.
func (f folder) Apply(_ context.Context, u reconcile.Update) error {
	var j job
	if err := f.read(u.Job, &j); err != nil {
		return err
	}
	if len(j.On) > 0 || time.Until(j.Starts) <= 0 {
		return errors.New("it has started")
	}
	j.Why, j.Starts = u.Why, time.Now()
	switch u.Kind {
	case reconcile.Start:
		j.On, j.BatchSizes = u.Shares, u.BatchSizes
	case reconcile.Hold:
		j.Starts = j.Starts.Add(u.Lease)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	temporary := filepath.Join(f.path, u.Job+".new")
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(f.path, u.Job+".json"))
}

func (f folder) read(name string, into any) error {
	text, err := os.ReadFile(filepath.Join(f.path, name+".json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s.json: %w", name, err)
	}
	return nil
}
