package identity

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustInit(t *testing.T, folder string, hosts ...string) []string {
	t.Helper()
	made, err := Init(folder, hosts, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// files are those of one of what Init made.
func files(folder, name string) Files {
	path := filepath.Join(folder, name)
	return Files{path + ".pem", path + ".key", filepath.Join(folder, "ca.pem")}
}

// shake lets a client and a server of the folders meet, and returns what the client and the server say.
func shake(t *testing.T, server, client Files, name string) (clientSays, serverSays error) {
	t.Helper()
	s, err := server.Server()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	c.ServerName = name
	here, there := net.Pipe()
	defer here.Close()
	answered := make(chan error, 1)
	go func() {
		conn := tls.Server(there, s)
		_, err := conn.Write([]byte("x"))
		there.Close()
		answered <- err
	}()
	conn := tls.Client(here, c)
	if clientSays = conn.Handshake(); clientSays == nil {
		_, clientSays = io.ReadFull(conn, make([]byte, 1))
	}
	here.Close()
	return clientSays, <-answered
}

func TestInitMakesWhatBothEndsTrust(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	made := mustInit(t, folder, "core.example", "192.0.2.1")
	if len(made) != 8 {
		t.Errorf("made %q", made)
	}
	for _, path := range made {
		info, err := os.Stat(path)
		want := os.FileMode(0o644)
		if strings.HasSuffix(path, ".key") {
			want = 0o600
		}
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	other := filepath.Join(t.TempDir(), "other")
	mustInit(t, other, "core.example")
	for name, c := range map[string]struct {
		server, client Files
		host           string
		works          bool
	}{
		"a node":                     {files(folder, "server"), files(folder, "node"), "core.example", true},
		"a controller, by address":   {files(folder, "server"), files(folder, "controller"), "192.0.2.1", true},
		"another name":               {files(folder, "server"), files(folder, "node"), "elsewhere", false},
		"another authority's node":   {files(folder, "server"), files(other, "node"), "core.example", false},
		"a node that plays the core": {files(folder, "node"), files(folder, "node"), "core.example", false},
		"a core that plays a client": {files(folder, "server"), files(folder, "server"), "core.example", false},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := shake(t, c.server, c.client, c.host)
			if works := client == nil && server == nil; works != c.works {
				t.Errorf("client %v, server %v", client, server)
			}
		})
	}
}

func TestInitRenewsWhatWasRemovedAndNothingElse(t *testing.T) {
	folder := t.TempDir()
	made := mustInit(t, folder, "core.example")
	before := make(map[string]string)
	for _, path := range made {
		before[path] = read(t, path)
	}
	if again := mustInit(t, folder, "other.example"); len(again) != 0 {
		t.Errorf("made %q again", again)
	}
	renewed := []string{filepath.Join(folder, "server.key"), filepath.Join(folder, "server.pem")}
	for _, path := range renewed {
		os.Remove(path)
	}
	if again := mustInit(t, folder, "core.example"); !slices.Equal(again, renewed) {
		t.Errorf("made %q", again)
	}
	for path, content := range before {
		if same := read(t, path) == content; same == slices.Contains(renewed, path) {
			t.Errorf("%s: the same as before: %v", path, same)
		}
	}
	if client, server := shake(t, files(folder, "server"), files(folder, "node"), "core.example"); client != nil || server != nil {
		t.Errorf("after the renewal: client %v, server %v", client, server)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestInitRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		gone []string
		at   time.Duration // after the authority was made
		want string
	}{
		"a certificate without its key":    {[]string{"node.key"}, 0, "node.key: missing, and "},
		"a key without its certificate":    {[]string{"node.pem"}, 0, "node.pem: missing, and "},
		"no authority":                     {[]string{"ca.pem", "ca.key"}, 0, "ca.pem: missing, beside certificates"},
		"an authority that cannot sign":    {[]string{"ca.key", "node.pem", "node.key"}, 0, "ca.key: missing, and needed to sign"},
		"an authority whose time is up":    {[]string{"node.pem", "node.key"}, authorityLife + 1, "ca.pem: expired on "},
		"an authority's key without it":    {[]string{"ca.pem"}, 0, "ca.pem: missing, and "},
		"nothing, where all that is needs": {[]string{"ca.key"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			mustInit(t, folder, "core.example")
			for _, file := range c.gone {
				os.Remove(filepath.Join(folder, file))
			}
			made, err := Init(folder, nil, time.Now().Add(c.at))
			if c.want == "" {
				if err != nil || len(made) > 0 {
					t.Errorf("made %q, %v", made, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || len(made) > 0 {
				t.Errorf("made %q, %v, want %s", made, err, c.want)
			}
		})
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	folder := t.TempDir()
	mustInit(t, folder, "core.example")
	for _, suffix := range []string{".pem", ".key"} {
		os.Remove(filepath.Join(folder, "node"+suffix))
	}
	if _, err := Init(folder, nil, time.Now().Add(authorityLife-time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, node, err := files(folder, "node").Valid()
	if err != nil {
		t.Fatal(err)
	}
	_, authority, err := Files{filepath.Join(folder, "ca.pem"), filepath.Join(folder, "ca.key"),
		filepath.Join(folder, "ca.pem")}.Valid()
	if err != nil || node.After(authority) {
		t.Errorf("until %v, the authority until %v, %v", node, authority, err)
	}
}
