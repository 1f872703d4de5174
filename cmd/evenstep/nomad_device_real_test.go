package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenstep/evenstep/nomad/nomadtest"
)

// realNomad is a development agent of a real Nomad: server and client in one process.
type realNomad struct {
	t       *testing.T
	program string
	address string
	log     *lockedBuffer
}

// nomadProgram is the nomad that tests run; without one the test is skipped.
func nomadProgram(t *testing.T) string {
	t.Helper()
	program := nomadtest.Binary()
	if program == "" {
		t.Skip("no nomad on PATH, nor in EVENSTEP_NOMAD")
	}
	return program
}

// startNomad starts Nomad with more configuration, and waits until its client is ready.
func startNomad(t *testing.T, configuration string) *realNomad {
	t.Helper()
	n := &realNomad{t: t, program: nomadProgram(t), log: new(lockedBuffer)}
	folder := openTempDir(t)
	ports := nomadtest.FreePorts(t, 3)
	n.address = fmt.Sprint("http://127.0.0.1:", ports[0])
	path := filepath.Join(folder, "agent.hcl")
	// It looks for no cloud, and for nothing newer.
	text := fmt.Sprintf("ports {\n http = %d\n rpc = %d\n serf = %d\n}\n", ports[0], ports[1], ports[2]) + fmt.Sprintf(`
bind_addr            = "127.0.0.1"
disable_update_check = true
data_dir             = %q
consul {
  auto_advertise   = false
  client_auto_join = false
  server_auto_join = false
}
`, filepath.Join(folder, "data")) + configuration
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(n.program, "agent", "-dev", "-config", path)
	cmd.Env = append(os.Environ(), "TMPDIR="+folder) // for the sockets of plugins, which stay where one is killed
	cmd.Stdout, cmd.Stderr = n.log, n.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(n.log)
		}
	})
	n.until("its client is ready", func() bool {
		out, err := n.try("node", "status")
		return err == nil && strings.Contains(out, "ready")
	})
	return n
}

// until waits until something holds.
func (n *realNomad) until(what string, holds func() bool) {
	n.t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	n.t.Fatalf("never: %s", what)
}

func (n *realNomad) try(args ...string) (stdout string, err error) {
	cmd := exec.Command(n.program, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+n.address)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("nomad %v: %w: %s", args, err, &stderr)
	}
	return string(out), err
}

func (n *realNomad) run(args ...string) (stdout string) {
	n.t.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// finished waits for the end of a job with one allocation and returns that.
func (n *realNomad) finished(job string) (allocation string) {
	n.t.Helper()
	var allocations []struct{ ID, ClientStatus string }
	n.until(job+" has ended", func() bool {
		out, err := n.try("job", "allocs", "-json", job)
		return err == nil && json.Unmarshal([]byte(out), &allocations) == nil && len(allocations) == 1 &&
			(allocations[0].ClientStatus == "complete" || allocations[0].ClientStatus == "failed")
	})
	if allocations[0].ClientStatus != "complete" {
		n.t.Fatal(n.run("alloc", "status", "-verbose", allocations[0].ID))
	}
	return allocations[0].ID
}

// quiet is the client's part of the configuration where there is no cloud.
const quiet = `client {
  options = {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni,bridge"
  }
}
`

func TestARealNomadGivesJobsTheDevices(t *testing.T) {
	nomadProgram(t)
	c := profiledCluster(t)
	static := filepath.Join(openTempDir(t), "evenstep")
	build := exec.Command("go", "build", "-o", static, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	plugins := nomadPlugin(t)
	n := startNomad(t, quiet+fmt.Sprintf(`
plugin_dir = %q
plugin "evenstep-device" {
  config {
    agent = %q
  }
}
client {
  chroot_env {
    %q = "/bin/evenstep"
  }
}
`, plugins, c.socket, static))

	var shown string
	n.until("the devices are shown, with how fast they are", func() bool {
		shown = strings.Join(strings.Fields(n.run("node", "status", "-self", "-verbose", "-stats")), " ")
		return strings.Contains(shown, "samples_per_second")
	})
	_, groups, _ := strings.Cut(shown, "Device Group Attributes")
	_, a30, _ := strings.Cut(groups, "Device Group = evenstep/gpu/NVIDIA A30 ")
	a30, h200, _ := strings.Cut(a30, "Device Group = evenstep/gpu/NVIDIA H200 ")
	for want, in := range map[string]string{
		"evenstep/gpu/NVIDIA A30[GPU-a30] 1024 / 24576 MiB evenstep/gpu/NVIDIA H200[GPU-h200] 1024 / 144384 MiB": shown,
		"Power = 699.5 W SM clock = 1410 / 1980 MHz Throttled = SW power cap ":                                   shown,
		"memory = 24576 MiB ":                          a30,
		"samples_per_second_resnet50-amp = 680 ":       a30,
		"samples_per_second_train_py_7_float32 = 0.5 ": a30,
		"sm_clock = 1440 MHz ":                         a30,
		"samples_per_second_resnet50-amp = 2300 ":      h200,
		"memory = 144384 MiB ":                         h200,
	} {
		if !strings.Contains(in, want) {
			t.Errorf("not %s in %s", want, in)
		}
	}

	// One task asks for a speed, the other one, which sees little of the node, for a model.
	spec := filepath.Join(t.TempDir(), "job.nomad.hcl")
	if err := os.WriteFile(spec, []byte(`
job "two" {
  type = "batch"
  group "workers" {
    task "fast" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/env"
      }
      resources {
        device "evenstep/gpu" {
          constraint {
            attribute = "${device.attr.samples_per_second_resnet50-amp}"
            operator  = ">="
            value     = "1000"
          }
        }
      }
    }
    task "inside" {
      driver = "exec"
      user   = "61001"
      config {
        command = "/bin/evenstep"
        args    = ["status", "--output", "json"]
      }
      resources {
        device "evenstep/gpu/NVIDIA A30" {}
      }
    }
  }
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.run("job", "run", "-detach", spec)
	allocation := n.finished("two")
	environment := n.run("alloc", "logs", allocation, "fast")
	for _, want := range []string{"CUDA_VISIBLE_DEVICES=GPU-h200", "NVIDIA_VISIBLE_DEVICES=GPU-h200",
		"EVENSTEP_AGENT_ADDR=" + c.socket, "EVENSTEP_ADDR=" + c.socket} {
		if !strings.Contains("\n"+environment, "\n"+want+"\n") {
			t.Errorf("not %s in\n%s", want, environment)
		}
	}
	// It reached the core: there are no jobs.
	if jobs := n.run("alloc", "logs", allocation, "inside"); !strings.Contains(jobs, `"jobs":[]`) {
		t.Errorf("got %q", jobs)
	}

	// Nomad starts a plugin that dies again, and finds the same devices.
	plugin := filepath.Join(plugins, "evenstep-device")
	killed := processOf(t, plugin)
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.until("the plugin runs again", func() bool {
		return strings.Count(n.log.String(), "using plugin: plugin=evenstep-device") == 2
	})
	n.run("job", "stop", "-purge", "two")
	n.run("job", "run", "-detach", spec)
	n.finished("two")
}

// What cannot be does not keep Nomad from starting. Only names of keys that there are not do: those it refuses itself.
func TestARealNomadStartsWithAWrongConfigurationOfTheDevicePlugin(t *testing.T) {
	nomadProgram(t)
	n := startNomad(t, `
plugin_dir = "`+nomadPlugin(t)+`"
plugin "evenstep-device" {
  config {
    agent = 5
  }
}
`+quiet)
	if shown := n.run("node", "status", "-self", "-verbose", "-stats"); strings.Contains(shown, "evenstep/gpu") {
		t.Errorf("there are devices:\n%s", shown)
	}
	want := "[ERROR] client.device_mgr.evenstep-device: there are no devices"
	if !strings.Contains(n.log.String(), want) {
		t.Errorf("not %s in the log", want)
	}
}

func TestARealNomadTakesTheExampleOfTheClient(t *testing.T) {
	rest := filepath.Join(t.TempDir(), "rest.hcl")
	if err := os.WriteFile(rest, []byte(`data_dir = "/opt/nomad/data"`), 0o600); err != nil {
		t.Fatal(err)
	}
	validate := exec.Command(nomadProgram(t), "config", "validate", rest, "../../examples/nomad/client.hcl")
	if out, err := validate.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
