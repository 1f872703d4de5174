package nomadtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"
)

// Agents is a real Nomad cluster on loopback: a server and a client for each node, in a temporary folder.
type Agents struct {
	Folder string
	t      testing.TB
	binary string
	port   int
	tls    bool
	agents map[string]*exec.Cmd // by name; the server's is server
}

// AgentsOptions are what a real cluster may have beside its nodes.
type AgentsOptions struct {
	ACL       bool
	TLS       bool   // mutual, with certificates in the cluster's folder: see Certificates
	PluginDir string // of the clients; empty for none
	// ClientConfig is added to each client's configuration, with the node's name in the place of NODE.
	ClientConfig string
}

// Binary is the nomad that tests run: $EVENSTEP_NOMAD, else the one on PATH; empty where there is none.
func Binary() string {
	if named := os.Getenv("EVENSTEP_NOMAD"); named != "" {
		return named
	}
	found, _ := exec.LookPath("nomad")
	return found
}

// StartAgents starts a real cluster; it ends with the test, which is skipped where there is no nomad.
func StartAgents(t testing.TB, o AgentsOptions, nodes ...Node) *Agents {
	t.Helper()
	binary := Binary()
	if binary == "" {
		t.Skip("no nomad on PATH and none in $EVENSTEP_NOMAD")
	}
	if os.Geteuid() != 0 {
		t.Skip("Nomad's clients run as root")
	}
	folder, err := os.MkdirTemp("", "nomad")
	if err != nil {
		t.Fatal(err)
	}
	a := &Agents{Folder: folder, t: t, binary: binary, tls: o.TLS, agents: map[string]*exec.Cmd{}}
	t.Cleanup(a.end)
	if a.tls {
		a.makeCertificates()
	}
	ports := FreePorts(t, 3+len(nodes))
	a.port = ports[0]
	a.run("server", fmt.Sprintf(`
ports { 
  http = %d
  rpc  = %d
  serf = %d
}
server {
  enabled           = true
  bootstrap_expect  = 1
  min_heartbeat_ttl = "1s"
  heartbeat_grace   = "1s"
}
acl { enabled = %v }
`, ports[0], ports[1], ports[2], o.ACL)+a.tlsConfig("server"))
	for i, n := range nodes {
		a.run(n.Name, clientConfig(n, o, ports[3+i], ports[1])+a.tlsConfig("client"))
	}
	if !o.ACL {
		a.WaitForNodes(a.Client(""), len(nodes))
	}
	return a
}

func clientConfig(n Node, o AgentsOptions, port, server int) string {
	config := fmt.Sprintf(`
ports { http = %d }
client {
  enabled           = true
  servers           = ["127.0.0.1:%d"]
  network_interface = "lo"
  node_class        = %q
  meta { evenstep_type = %q }
  options {
    "driver.allowlist"     = "raw_exec"
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni,bridge"
  }
`, port, server, n.Class, n.Type)
	if n.Pool != "" {
		config += fmt.Sprintf("  node_pool = %q\n", n.Pool)
	}
	config += "}\nplugin \"raw_exec\" {\n  config { enabled = true }\n}\n"
	if o.PluginDir != "" {
		config += fmt.Sprintf("plugin_dir = %q\n", o.PluginDir)
	}
	return config + strings.ReplaceAll(o.ClientConfig, "NODE", n.Name)
}

// makeCertificates has nomad make an authority, and a certificate of each kind.
func (a *Agents) makeCertificates() {
	for _, args := range [][]string{{"ca", "create"}, {"cert", "create", "-server"}, {"cert", "create", "-client"},
		{"cert", "create", "-cli"}} {
		cmd := exec.Command(a.binary, append([]string{"tls"}, args...)...)
		cmd.Dir = a.Folder
		if out, err := cmd.CombinedOutput(); err != nil {
			a.t.Fatalf("%v: %v: %s", cmd.Args, err, out)
		}
	}
}

// Certificates are the files of the authority's certificate, and of the certificate and the key of one kind: server, client
// or cli.
func (a *Agents) Certificates(kind string) (ca, cert, key string) {
	in := func(name string) string { return filepath.Join(a.Folder, name) }
	return in("nomad-agent-ca.pem"), in("global-" + kind + "-nomad.pem"), in("global-" + kind + "-nomad-key.pem")
}

func (a *Agents) tlsConfig(kind string) string {
	if !a.tls {
		return ""
	}
	ca, cert, key := a.Certificates(kind)
	return fmt.Sprintf(`
tls {
  http      = true
  rpc       = true
  ca_file   = %q
  cert_file = %q
  key_file  = %q

  verify_server_hostname = true
  verify_https_client    = true
}
`, ca, cert, key)
}

// run starts an agent.
func (a *Agents) run(name, config string) {
	a.t.Helper()
	config = fmt.Sprintf(`
name                 = %q
data_dir             = %q
bind_addr            = "127.0.0.1"
disable_update_check = true
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
`, name, filepath.Join(a.Folder, name)) + config
	file := filepath.Join(a.Folder, name+".hcl")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		a.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(a.Folder, name+".log"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(a.binary, "agent", "-config", file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "NOMAD_ADDR=", "NOMAD_TOKEN=", "NOMAD_NAMESPACE=", "NOMAD_REGION=")
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.agents[name] = cmd
}

// Address is the cluster's NOMAD_ADDR.
func (a *Agents) Address() string {
	if a.tls {
		return fmt.Sprintf("https://127.0.0.1:%d", a.port)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", a.port)
}

// Client is a client of the cluster's API.
func (a *Agents) Client(token string) *api.Client {
	config := &api.Config{Address: a.Address(), SecretID: token}
	if a.tls {
		ca, cert, key := a.Certificates("cli")
		config.TLSConfig = &api.TLSConfig{CACert: ca, ClientCert: cert, ClientKey: key}
	}
	c, err := api.NewClient(config)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// WaitForNodes waits until as many nodes are ready.
func (a *Agents) WaitForNodes(c *api.Client, count int) {
	a.t.Helper()
	for range 600 {
		nodes, _, err := c.Nodes().List(nil)
		ready := 0
		for _, n := range nodes {
			if n.Status == "ready" {
				ready++
			}
		}
		if err == nil && ready == count {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	a.t.Fatalf("not %d nodes ready after a minute; logs:\n%s", count, a.logs())
}

func (a *Agents) logs() string {
	files, _ := filepath.Glob(filepath.Join(a.Folder, "*.log"))
	var all bytes.Buffer
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(f), text[max(0, len(text)-1500):])
	}
	return all.String()
}

// Lose kills a node's client, as when the machine is gone.
func (a *Agents) Lose(name string) {
	cmd := a.agents[name]
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	delete(a.agents, name)
	a.killTasks(filepath.Join(a.Folder, name) + "/")
}

// end ends jobs, agents and whatever is left of them.
func (a *Agents) end() {
	if a.t.Failed() {
		a.t.Log(a.logs())
	}
	for _, cmd := range a.agents {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	a.killTasks(a.Folder + "/")
	a.unmount()
	if err := os.RemoveAll(a.Folder); err != nil {
		a.t.Log(err)
	}
}

// killTasks kills the processes that hold a file below a folder, or were started for an allocation there: tasks,
// and the helpers that a client starts for each. All of them are of this cluster, whose folder nobody else knows.
func (a *Agents) killTasks(folder string) {
	for range 50 {
		found := processes(folder)
		if len(found) == 0 {
			return
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func processes(folder string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		pid, _ := strconv.Atoi(filepath.Base(proc))
		if pid == os.Getpid() {
			continue
		}
		environment, _ := os.ReadFile(proc + "/environ")
		holds := bytes.Contains(environment, []byte("NOMAD_ALLOC_DIR="+folder))
		files, _ := filepath.Glob(proc + "/fd/*")
		holds = holds || slices.ContainsFunc(files, func(file string) bool {
			to, _ := os.Readlink(file)
			return strings.HasPrefix(to, folder)
		})
		if holds {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unmount unmounts what clients mounted for allocations.
func (a *Agents) unmount() {
	mounts, _ := os.ReadFile("/proc/mounts")
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], a.Folder+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
}

// Nomad runs the nomad command against the cluster and returns what it says.
func (a *Agents) Nomad(token string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.binary, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+a.Address(), "NOMAD_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// FreePorts are ports of loopback that nobody listens at.
func FreePorts(t testing.TB, count int) (ports []int) {
	t.Helper()
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
