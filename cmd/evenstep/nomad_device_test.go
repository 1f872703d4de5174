package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-msgpack/v2/codec"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evenstep/evenstep/core/cluster"
	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/speed"
	"github.com/evenstep/evenstep/nomad/device/wire"
)

// nomadPlugin builds evenstep-device into a folder of its own, as Nomad's plugin_dir is.
func nomadPlugin(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if out, err := exec.Command("go", "build", "-o", folder, "../evenstep-device").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

// nomadHost is what Nomad does with a device plugin, over the same library.
type nomadHost struct {
	t      *testing.T
	client *goplugin.Client
	base   wire.BasePluginClient
	device wire.DevicePluginClient
	log    *lockedBuffer
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// dispensed hands a plugin's connection to its host.
type dispensed struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (dispensed) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }

func (dispensed) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// loadPlugin starts the plugin and shakes hands with it; a plugin that does not configure itself is of no use to Nomad.
func loadPlugin(t *testing.T, folder string, config map[string]any) *nomadHost {
	t.Helper()
	h := &nomadHost{t: t, log: new(lockedBuffer)}
	h.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "NOMAD_PLUGIN_MAGIC_COOKIE",
			MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"},
		Plugins:          goplugin.PluginSet{"base": dispensed{}, "device": dispensed{}},
		Cmd:              exec.Command(filepath.Join(folder, "evenstep-device")),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Output: h.log, Level: hclog.Info}),
	})
	t.Cleanup(h.client.Kill)
	protocol, err := h.client.Client()
	if err != nil {
		t.Fatal(err)
	}
	dispense := func(name string) *grpc.ClientConn {
		raw, err := protocol.Dispense(name)
		if err != nil {
			t.Fatal(err)
		}
		return raw.(*grpc.ClientConn)
	}
	h.base, h.device = wire.NewBasePluginClient(dispense("base")), wire.NewDevicePluginClient(dispense("device"))
	var data []byte
	if err := codec.NewEncoderBytes(&data, new(codec.MsgpackHandle)).Encode(config); err != nil {
		t.Fatal(err)
	}
	request := &wire.SetConfigRequest{MsgpackConfig: data, PluginApiVersion: "v0.1.0"}
	if _, err := h.base.SetConfig(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return h
}

// fingerprints are the answers of a stream, as they come.
func (h *nomadHost) fingerprints() <-chan []*wire.DeviceGroup {
	h.t.Helper()
	stream, err := h.device.Fingerprint(h.t.Context(), &wire.FingerprintRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	answers := make(chan []*wire.DeviceGroup, 100)
	go func() {
		defer close(answers)
		for r, err := stream.Recv(); err == nil; r, err = stream.Recv() {
			answers <- r.GetDeviceGroup()
		}
	}()
	return answers
}

// next waits for an answer.
func next(t *testing.T, answers <-chan []*wire.DeviceGroup) []*wire.DeviceGroup {
	t.Helper()
	select {
	case groups, open := <-answers:
		if !open {
			t.Fatal("the stream ended, which Nomad takes for the end of all devices")
		}
		return groups
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
	return nil
}

func (h *nomadHost) reserve(ids ...string) (*wire.ContainerReservation, error) {
	r, err := h.device.Reserve(h.t.Context(), &wire.ReserveRequest{DeviceIds: ids})
	return r.GetContainerRes(), err
}

// Nothing keeps Nomad from starting: not a node without a GPU, a driver, an agent or a core, and no value of a key.
func TestTheDevicePluginStartsWhateverIsMissing(t *testing.T) {
	folder := nomadPlugin(t)
	_, path, runtime := socketIn(t)
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config map[string]any
		logged string
	}{
		"no agent":         {map[string]any{"agent": "unix:" + path}, "the agent does not answer"},
		"a wrong value":    {map[string]any{"agent": "tcp:host:1"}, `config.agent: \"tcp:host:1\" is no socket`},
		"a wrong type":     {map[string]any{"agent": []int{5}}, `config.agent: \"[5]\" is no socket`},
		"an unknown key":   {map[string]any{"agnt": nil}, "config.agnt: unknown"},
		"no configuration": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := loadPlugin(t, folder, c.config)
			info, err := h.base.PluginInfo(t.Context(), &wire.PluginInfoRequest{})
			want := &wire.PluginInfoResponse{Type: wire.PluginType_DEVICE, PluginApiVersions: []string{"v0.1.0"},
				PluginVersion: version, Name: "evenstep-device"}
			if diff := cmp.Diff(want, info, protocmp.Transform()); err != nil || diff != "" {
				t.Error(err, diff)
			}
			schema, err := h.base.ConfigSchema(t.Context(), &wire.ConfigSchemaRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for key, spec := range schema.GetSpec().GetObject().GetAttributes() {
				if a := spec.GetAttr(); a.GetName() != key || a.GetRequired() || a.GetType() != "any" {
					t.Errorf("%s: %v", key, spec)
				}
			}
			if name == "no configuration" {
				return // an agent may run on this machine
			}
			if groups := next(t, h.fingerprints()); len(groups) != 0 {
				t.Errorf("got %v", groups)
			}
			if _, err := h.reserve("GPU-h200"); err == nil {
				t.Error("it reserves what is not there")
			}
			if !strings.Contains(h.log.String(), c.logged) {
				t.Errorf("not %s in the log:\n%s", c.logged, h.log)
			}
		})
	}
}

func quantity(value int64, unit string) *wire.Attribute {
	return &wire.Attribute{Value: &wire.Attribute_IntVal{IntVal: value}, Unit: unit}
}

func rate(value float64) *wire.Attribute {
	return &wire.Attribute{Value: &wire.Attribute_FloatVal{FloatVal: value}}
}

// stubGroups are the devices of the stub, as Nomad is told of them.
func stubGroups() []*wire.DeviceGroup {
	group := func(name, id string, memory, clock int64) *wire.DeviceGroup {
		return &wire.DeviceGroup{Vendor: "evenstep", DeviceType: "gpu", DeviceName: name,
			Devices: []*wire.DetectedDevice{{ID: id, Healthy: true}}, Attributes: map[string]*wire.Attribute{
				"memory": quantity(memory, "MiB"), "sm_clock": quantity(clock, "MHz"),
				"memory_clock": quantity(3201, "MHz")}}
	}
	return []*wire.DeviceGroup{
		group("NVIDIA A30", "GPU-a30", 24<<10, 1440), group("NVIDIA H200", "GPU-h200", 141<<10, 1980),
	}
}

func TestTheDevicePluginShowsWhatTheAgentSees(t *testing.T) {
	t.Setenv("EVENSTEP_NVML_LIBRARY", stub(t))
	nvml := nvmlPlugin(t, "1")
	address, _, runtime := socketIn(t)
	h := loadPlugin(t, nomadPlugin(t), map[string]any{"agent": address})
	answers := h.fingerprints()
	if groups := next(t, answers); len(groups) != 0 {
		t.Errorf("without the agent: %v", groups)
	}
	agent := startCommand(t, "agent", "--listen", address, "--plugin-dir", nvml)
	agent.listening()
	if diff := cmp.Diff(stubGroups(), next(t, answers), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}

	got, err := h.reserve("GPU-h200", "GPU-a30")
	want := &wire.ContainerReservation{
		Envs: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-h200,GPU-a30",
			"NVIDIA_VISIBLE_DEVICES": "GPU-h200,GPU-a30", "EVENSTEP_AGENT_ADDR": address},
		Mounts: []*wire.Mount{{TaskPath: runtime, HostPath: runtime, ReadOnly: true}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
	_, err = h.reserve("GPU-h200", "GPU-x")
	if err == nil || !strings.Contains(err.Error(), `device "GPU-x" is not on this node`) {
		t.Errorf("got %v", err)
	}

	stats, err := h.device.Stats(t.Context(), &wire.StatsRequest{CollectionInterval: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	measured := func() *wire.StatsResponse {
		t.Helper()
		r, err := stats.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	checkStats(t, measured())

	// What it said stays while the agent is away, and is not said again when it is back.
	agent.signal(syscall.SIGKILL)
	_ = agent.ended()
	if _, err := h.reserve("GPU-h200"); err != nil {
		t.Error(err)
	}
	away := func() bool {
		summary := measured().GetGroups()[0].GetInstanceStats()["GPU-a30"].GetSummary()
		return summary.GetStringVal().GetValue() == "the agent does not answer"
	}
	for !away() {
	}
	startCommand(t, "agent", "--listen", address, "--plugin-dir", nvml).listening()
	for away() {
	}
	select {
	case groups := <-answers:
		t.Errorf("Nomad is told again: %v", groups)
	default:
	}
	for _, want := range []string{"the agent does not answer", "the agent answers"} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("not %s in the log:\n%s", want, h.log)
		}
	}
}

// checkStats wants what the stub's H200 does.
func checkStats(t *testing.T, r *wire.StatsResponse) {
	t.Helper()
	if len(r.GetGroups()) != 2 {
		t.Fatalf("got %v", r)
	}
	group := r.GetGroups()[1]
	if group.GetVendor() != "evenstep" || group.GetType() != "gpu" || group.GetName() != "NVIDIA H200" {
		t.Errorf("got %v", group)
	}
	values := group.GetInstanceStats()["GPU-h200"].GetStats().GetAttributes()
	got := make(map[string]string)
	for name, v := range values {
		name += " " + v.GetUnit()
		switch {
		case v.GetStringVal() != nil:
			got[name] = v.GetStringVal().GetValue()
		case v.GetIntNumeratorVal() != nil:
			got[name] = fmt.Sprint(v.GetIntNumeratorVal().GetValue(), " of ", v.GetIntDenominatorVal().GetValue())
		default:
			got[name] = fmt.Sprint(v.GetFloatNumeratorVal().GetValue(), " of ", v.GetFloatDenominatorVal().GetValue())
		}
	}
	want := map[string]string{"Memory MiB": "1024 of 144384", "SM clock MHz": "1410 of 1980", "Power W": "699.5 of 0",
		"Throttled ": "SW power cap"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	summary := group.GetInstanceStats()["GPU-h200"].GetSummary()
	if diff := cmp.Diff(values["Memory"], summary, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// profiledCluster is a cluster whose core knows two workloads, and whose agent sees the stub's devices.
func profiledCluster(t *testing.T) *testCluster {
	t.Helper()
	t.Setenv("EVENSTEP_NVML_LIBRARY", stub(t))
	c := startClusterWith(t, func(profiles string) {
		keeper, err := profile.Hold(profiles, time.Second, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []struct {
			workload, on string
			rate         float64
		}{
			{"resnet50-amp", "NVIDIA H200", 2345}, {"resnet50-amp", "NVIDIA A30", 678},
			{"train.py:7:float32", "NVIDIA A30", 0.5},
		} {
			keeper.Record(r.workload, cluster.Device{Type: r.on}, profile.Sighting{
				Curve: speed.Learned{Samples: 10, Seconds: 10 / r.rate, Sigma: 0.1}, LargestBatch: 10, Steps: 20})
		}
		if err := keeper.Close(); err != nil {
			t.Fatal(err)
		}
	})
	c.agent.signal(syscall.SIGTERM)
	c.agent.exits(0)
	c.agent = startCommand(t, append([]string{"agent"}, append(c.tls("node"), "--core", c.target,
		"--listen", c.socket, "--plugin-dir", nvmlPlugin(t, "1"))...)...)
	c.agent.listening()
	return c
}

// restartCore ends the core and starts it anew at the same address.
func (c *testCluster) restartCore(t *testing.T) {
	t.Helper()
	c.core.signal(syscall.SIGKILL)
	_ = c.core.ended()
	profiles := filepath.Join(c.folder, "state", "profiles.db")
	c.core = start(t, append(c.tls("server"), "--listen", c.target, "--profiles", profiles)...)
	c.core.listening()
}

func TestTheDevicePluginTellsHowFastWorkloadsRun(t *testing.T) {
	c := profiledCluster(t)
	h := loadPlugin(t, nomadPlugin(t), map[string]any{"agent": c.socket})
	answers := h.fingerprints()
	want := stubGroups()
	want[0].Attributes["samples_per_second_resnet50-amp"] = rate(680)
	want[0].Attributes["samples_per_second_train_py_7_float32"] = rate(0.5)
	want[1].Attributes["samples_per_second_resnet50-amp"] = rate(2300)
	var got []*wire.DeviceGroup
	for range 3 { // at first there may be no sample of the devices, then, where the core is slow, no speeds
		if got = next(t, answers); cmp.Equal(want, got, protocmp.Transform()) {
			break
		}
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatal(diff)
	}
	r, err := h.reserve("GPU-a30")
	if err != nil || r.GetEnvs()["EVENSTEP_ADDR"] != c.socket || r.GetEnvs()["EVENSTEP_AGENT_ADDR"] != c.socket {
		t.Errorf("got %v, %v", r, err)
	}

	c.restartCore(t)
	stats, err := h.device.Stats(t.Context(), &wire.StatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := stats.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case groups := <-answers:
		t.Errorf("Nomad is told again: %v", groups)
	default:
	}
}

func TestTheDevicePluginSaysWhoseItIs(t *testing.T) {
	out, err := exec.Command(filepath.Join(nomadPlugin(t), "evenstep-device")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is a plugin of Nomad's: put it into the plugin_dir") {
		t.Errorf("got %v: %s", err, out)
	}
}
