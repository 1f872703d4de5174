package nomad_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/api"
	"google.golang.org/grpc"

	"github.com/evenstep/evenstep/nomad/nomadtest"
	"github.com/evenstep/evenstep/plugin/devices"
	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
)

// models are the GPUs of nodes, with their memory in GiB.
var models = map[string][]devices.Device{
	"n1": {gpu("a", "NVIDIA A100", 40), gpu("b", "NVIDIA A100", 40)},
	"n2": {gpu("c", "Tesla T4", 16), gpu("d", "Tesla T4", 16)},
	"n3": {gpu("e", "NVIDIA A100", 40), gpu("f", "Tesla T4", 16)},
}

func gpu(id, model string, gib uint64) devices.Device {
	return devices.Device{ID: id, UUID: "GPU-" + id, Kind: devices.GPU, Type: model, MemoryBytes: gib << 30}
}

func TestJobsGetDevicesOnTheFake(t *testing.T) {
	t.Parallel()
	var nodes []nomadtest.Node
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, nomadtest.Node{Name: name, Devices: groups(models[name])})
	}
	jobsGetDevices(t, newCluster(t, nomadtest.StartFake(t, nodes...)))
}

// groups are devices as Nomad shows them.
func groups(all []devices.Device) (groups []*api.NodeDeviceResource) {
	for _, d := range all {
		one := &api.NodeDevice{ID: d.UUID, Healthy: true}
		if n := len(groups); n > 0 && groups[n-1].Name == d.Type {
			groups[n-1].Instances = append(groups[n-1].Instances, one)
			continue
		}
		memory := int64(d.MemoryBytes >> 20)
		groups = append(groups, &api.NodeDeviceResource{Vendor: "evenstep", Type: "gpu", Name: d.Type, Instances: []*api.NodeDevice{one},
			Attributes: map[string]*api.Attribute{"memory": {IntVal: &memory, Unit: "MiB"}}})
	}
	return groups
}

// The real device plugin shows what a scripted agent of each node says.
func TestJobsGetDevicesOnAgents(t *testing.T) {
	t.Parallel()
	if nomadtest.Binary() == "" {
		t.Skip("no nomad on PATH and none in $EVENSTEP_NOMAD")
	}
	folder, err := os.MkdirTemp("", "plugins") // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	cmd := exec.Command("go", "build", "-o", filepath.Join(folder, "plugins", "evenstep-device"), "../cmd/evenstep-device")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	var nodes []nomadtest.Node
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, nomadtest.Node{Name: name})
		serveScriptedAgent(t, filepath.Join(folder, name+".sock"), models[name])
	}
	c := newCluster(t, nomadtest.StartAgents(t, nomadtest.AgentsOptions{
		PluginDir:    filepath.Join(folder, "plugins"),
		ClientConfig: fmt.Sprintf("plugin \"evenstep-device\" {\n  config { agent = \"unix:%s/NODE.sock\" }\n}\n", folder),
	}, nodes...))
	c.waitFor("devices of three nodes", func() bool {
		for name := range models {
			n, _, err := c.api.Nodes().Info(c.node(name), nil)
			if err != nil || n.NodeResources == nil || len(n.NodeResources.Devices) == 0 {
				return false
			}
		}
		return true
	})
	jobsGetDevices(t, c)
}

// ScriptedAgent says which devices a node has.
type ScriptedAgent struct {
	devicesv1.UnimplementedDevicesServer
	all []devices.Device
}

func (a *ScriptedAgent) Probe(context.Context, *devicesv1.ProbeRequest) (*devicesv1.ProbeResponse, error) {
	return devices.Report{Devices: a.all}.Wire(), nil
}

func serveScriptedAgent(t *testing.T, socket string, all []devices.Device) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	devicesv1.RegisterDevicesServer(g, &ScriptedAgent{all: all})
	done := make(chan struct{})
	go func() {
		_ = g.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
}

// jobsGetDevices gives jobs the devices that they ask for.
func jobsGetDevices(t *testing.T, c *cluster) {
	c.file("rates.json", `{"w":{"NVIDIA A100":4,"Tesla T4":1}}`)
	atLeast := func(memory string) *api.Constraint { return api.NewConstraint("${device.attr.memory}", ">=", memory) }
	for _, want := range []struct {
		name  string
		words string
		ask   func(*api.Job)
		nodes string
		sizes string
	}{
		// On n3, with devices of both types, Nomad would choose.
		{"any", words + " workers=1-9", asksFor("evenstep/gpu", 1), "n1,n2", "80,20"},
		{"two", words + " workers=4", asksFor("gpu", 2), "n1,n2", "40,40,10,10"},
		{"model", words + " workers=1-9", asksFor("evenstep/gpu/Tesla T4", 1), "n2,n3", "50,50"},
		{"memory", words + " workers=1-9", asksFor("evenstep/gpu", 1, atLeast("30 GiB")), "n1,n3", "50,50"},
		{"constraint", words, asksFor("gpu", 1, api.NewConstraint("${device.model}", "regexp", "^Tesla")), "n3", "100"},
	} {
		c.register(newJob(want.name, want.words, 1, 600, hold, want.ask))
		log := c.once()
		c.waitFor("start of "+want.name, func() bool { return c.where(want.name) != "" })
		if got := c.where(want.name); got != want.nodes {
			t.Errorf("%s on %s, not %s; log: %s", want.name, got, want.nodes, log)
		}
		if got := c.message(want.name)["evenstep_batch_sizes"]; got != want.sizes {
			t.Errorf("%s begins with %s, not %s", want.name, got, want.sizes)
		}
		c.end(want.name)
	}
	// Devices that others hold are not given again.
	c.register(newJob("theirs", "", 1, 600, asksFor("evenstep/gpu", 2), onNode("n1")))
	c.runsOn("theirs", "n1")
	c.register(newJob("rest", words, 1, 600, hold, asksFor("evenstep/gpu", 1)))
	t.Log(planned(c))
	c.once()
	c.runsOn("rest", "n2")
}

// end ends a job and waits until its devices are free.
func (c *cluster) end(job string) {
	c.t.Helper()
	if _, _, err := c.api.Jobs().Deregister(job, false, nil); err != nil {
		c.t.Fatal(err)
	}
	c.waitFor("end of "+job, func() bool {
		all, _, err := c.api.Jobs().Allocations(job, false, nil)
		for _, a := range all {
			if a.ClientStatus == "running" || a.ClientStatus == "pending" {
				return false
			}
		}
		return err == nil
	})
}
