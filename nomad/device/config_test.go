package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// packed is a value as Nomad hands it over.
func packed(t testing.TB, value any) (data []byte) {
	t.Helper()
	handle := &codec.MsgpackHandle{}
	if err := codec.NewEncoderBytes(&data, handle).Encode(value); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAConfigurationMayBeEmpty(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing": nil, "an empty map": packed(t, map[string]any{}), "a null": packed(t, map[string]any{"agent": nil}),
	} {
		if socket, err := parseConfig(data); socket != "/run/evenstep/agent.sock" || err != nil {
			t.Errorf("%s: got %q, %v", name, socket, err)
		}
	}
	socket, err := parseConfig(packed(t, map[string]any{"agent": "unix:/a//b/c.sock"}))
	if socket != "/a/b/c.sock" || err != nil {
		t.Errorf("got %q, %v", socket, err)
	}
}

func TestAWrongConfigurationIsNamed(t *testing.T) {
	for want, agent := range map[string]any{
		`config.agent: "5" is no socket; give unix:/PATH`:                  5,
		`config.agent: "[map[a:1]]" is no socket`:                          []any{map[string]any{"a": 1}},
		`config.agent: "" is no socket`:                                    "",
		`config.agent: "/run/evenstep/agent.sock" is no socket`:            "/run/evenstep/agent.sock",
		`config.agent: "tcp:localhost:1" is no socket`:                     "tcp:localhost:1",
		`config.agent: "unix:agent.sock" is no socket`:                     "unix:agent.sock",
		"config.agent: unix:/run/agent.sock is not in a folder of the age": "unix:/run/agent.sock",
		"config.agent: unix:/run/../../x/a is not in a folder of the agen": "unix:/run/../../x/a",
	} {
		refuses(t, want, packed(t, map[string]any{"agent": agent}))
	}
	long := "unix:/run/" + strings.Repeat("x", 103)
	refuses(t, "config.agent: the path of unix:/run/xxx", packed(t, map[string]any{"agent": long}))
	refuses(t, "config.agnt: unknown; there is agent", packed(t, map[string]any{"agnt": "x", "agent": 5}))
	refuses(t, "config: not a map in msgpack: ", []byte{0xc1})
	refuses(t, "config: not a map in msgpack: ", packed(t, "agent"))
}

// Tasks would get all sockets of the host, those that make root of who reaches them among them.
func TestAFolderOfTheHostIsNotTheAgents(t *testing.T) {
	link := filepath.Join(t.TempDir(), "run")
	if err := os.Symlink("/run", link); err != nil {
		t.Fatal(err)
	}
	socket, err := parseConfig(packed(t, map[string]any{"agent": "unix:" + filepath.Join(link, "agent.sock")}))
	if err == nil || !strings.Contains(err.Error(), "is not in a folder of the agent's own; give one as in unix:/run/") {
		t.Errorf("got %q, %v", socket, err)
	}
}

func refuses(t *testing.T, want string, data []byte) {
	t.Helper()
	if socket, err := parseConfig(data); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %q, %v, want %q", socket, err, want)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(packed(f, map[string]any{"agent": "unix:/run/evenstep/agent.sock"}))
	f.Add(packed(f, map[string]any{"agent": []any{map[string]any{"a": 1.5}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if socket, err := parseConfig(data); (err == nil) != strings.HasPrefix(socket, "/") {
			t.Errorf("%q, %v", socket, err)
		}
	})
}
