package devices

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/evenstep/evenstep/plugin"
)

// Node is all that look at the devices of this node, as one prober: those of plugins and the one that is built in.
type Node struct {
	builtin Prober
	folder  *plugin.Folder
	log     hclog.Logger

	mu     sync.Mutex
	failed map[string]string // by plugin: what the log has of it
}

// NewNode asks the built-in prober and the plugins of the folder. What is wrong with a plugin goes to the log too, once,
// for who does not look at the notes.
func NewNode(builtin Prober, folder *plugin.Folder, log hclog.Logger) *Node {
	for _, p := range folder.Plugins {
		if p.Kind == plugin.Devices && p.Refused != nil {
			log.Warn("a plugin is refused", "plugin", p.Path, "error", p.Refused)
		}
	}
	return &Node{builtin: builtin, folder: folder, log: log, failed: make(map[string]string)}
}

// Probe asks all at the same time. What a plugin fails to say is in a note; it is an error only of the built-in prober.
func (n *Node) Probe(ctx context.Context) (Report, error) {
	plugins := n.folder.OfKind(plugin.Devices)
	reports := make([]Report, len(plugins))
	failures := make([]error, len(plugins))
	var asked sync.WaitGroup
	for i, p := range plugins {
		asked.Go(func() { reports[i], failures[i] = New(p).Probe(ctx) })
	}
	builtin, err := n.builtin.Probe(ctx)
	asked.Wait()
	if err != nil {
		return Report{}, err
	}
	all := Report{Notes: n.notes()}
	for i, p := range plugins {
		r, err := reports[i], failures[i]
		if err == nil {
			// Together, so that no id is given to two.
			err = Report{Devices: slices.Concat(all.Devices, builtin.Devices, r.Devices)}.Check()
		}
		if ctx.Err() == nil {
			n.tell(p, err)
		}
		if err != nil {
			all.Notes = append(all.Notes, fmt.Sprintf("devices plugin %s failed: %v", p.Name, err))
			continue
		}
		all.Devices = append(all.Devices, r.Devices...)
		all.Notes = append(all.Notes, r.Notes...)
	}
	all.Devices = append(all.Devices, builtin.Devices...)
	all.Notes = append(all.Notes, builtin.Notes...)
	return all, nil
}

// tell logs how a plugin failed, unless it failed so before.
func (n *Node) tell(p *plugin.External, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch said := n.failed[p.Path]; {
	case err == nil:
		delete(n.failed, p.Path)
	case said != err.Error():
		n.failed[p.Path] = err.Error()
		n.log.Warn("a devices plugin failed, so its devices are not known", "plugin", p.Path, "error", err)
	}
}

// notes say what is known without looking: which plugins are not asked.
func (n *Node) notes() (notes []string) {
	for _, p := range n.folder.Plugins {
		if p.Kind == plugin.Devices && p.Refused != nil {
			notes = append(notes, fmt.Sprintf("devices plugin %s is refused: %v", p.Name, p.Refused))
		}
	}
	if len(n.folder.OfKind(plugin.Devices)) == 0 {
		notes = append(notes, "GPUs are not looked for: there is no plugin for that in "+n.folder.Path)
	}
	return notes
}
