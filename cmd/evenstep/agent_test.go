package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
)

// agentSees asks the agent until what it sees is as wanted.
func agentSees(t *testing.T, address string, wanted func(*devicesv1.ProbeResponse) bool) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var r *devicesv1.ProbeResponse
	for range 3000 {
		r, err = devicesv1.NewDevicesClient(conn).Probe(t.Context(), &devicesv1.ProbeRequest{})
		if err == nil && wanted(r) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the agent sees %v, %v", r, err)
}

func TestAgentServesTheDevicesOfItsNode(t *testing.T) {
	t.Setenv("EVENSTEP_NVML_LIBRARY", stub(t))
	folder := nvmlPlugin(t, "1")
	address, path, runtime := socketIn(t)
	a := startCommand(t, "agent", "--listen", address, "--plugin-dir", folder)
	if got := a.listening(); got != address {
		t.Fatalf("listening %s, want %s", got, address)
	}
	for path, want := range map[string]os.FileMode{runtime: os.ModeDir | 0o700, path: os.ModeSocket | 0o666} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Fatalf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	throttled := func(r *devicesv1.ProbeResponse) bool {
		return len(r.GetDevices()) == 3 && r.GetDevices()[0].GetType() == "NVIDIA H200" &&
			r.GetDevices()[0].GetThrottle()[0] == "SW power cap" && len(r.GetNotes()) == 2
	}
	agentSees(t, address, throttled)

	startCommand(t, "agent", "--listen", address).exits(4, "is in use by process ", fmt.Sprint(a.cmd.Process.Pid))

	// A plugin that is killed is missed, and comes back.
	plugin := filepath.Join(folder, "evenstep-devices-nvml")
	if err := syscall.Kill(processOf(t, plugin), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	agentSees(t, address, func(r *devicesv1.ProbeResponse) bool { return len(r.GetDevices()) == 1 })
	agentSees(t, address, throttled)
	pid := processOf(t, plugin)
	a.signal(syscall.SIGTERM)
	a.exits(0, "a devices plugin failed, so its devices are not known: plugin="+plugin+` error="its process died"`)
	mustBeGone(t, path)
	if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
		t.Error("the plugin outlives the agent")
	}
}

func TestAPrivateAgentEndsWithItsParent(t *testing.T) {
	address, path, runtime := socketIn(t)
	a := startCommand(t, "agent", "--private", "--listen", address)
	a.listening()
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	a.stdin.Close()
	a.exits(0)
	mustBeGone(t, runtime)
}

func TestAgentRefuses(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	startCommand(t, "agent").exits(2, "evenstep agent: --listen: missing")
	startCommand(t, "agent", "--listen", "tcp:localhost:1").exits(2, "is not on this node alone; give unix:PATH")
	none := startCommand(t, "agent", "--listen", "unix:/x", "--plugin-dir", "/no/folder")
	none.exits(2, "--plugin-dir: /no/folder is not there")
}
