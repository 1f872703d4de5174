package device

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

const (
	agentKey     = "agent"
	defaultAgent = "unix:/run/evenstep/agent.sock" // where an agent for all users of a node listens
	// maxSocketPath is the kernel's bound, in bytes.
	maxSocketPath = 107
)

// parseConfig reads the plugin's configuration, a map in msgpack in which all may be missing or null, and returns the
// path of the agent's socket. The error names the key.
func parseConfig(data []byte) (socket string, err error) {
	var values map[string]any
	if len(data) > 0 {
		handle := &codec.MsgpackHandle{}
		handle.RawToString = true
		if err := codec.NewDecoderBytes(data, handle).Decode(&values); err != nil {
			return "", fmt.Errorf("config: not a map in msgpack: %w", err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != agentKey {
			return "", fmt.Errorf("config.%.40s: unknown; there is %s", key, agentKey)
		}
	}
	address := any(defaultAgent)
	if given := values[agentKey]; given != nil {
		address = given
	}
	text, isText := address.(string)
	socket, isUnix := strings.CutPrefix(text, "unix:")
	switch {
	case !isText || !isUnix || !filepath.IsAbs(socket):
		return "", fmt.Errorf("config.%s: %.80q is no socket; give unix:/PATH, as in %s", agentKey, fmt.Sprint(address),
			defaultAgent)
	case len(filepath.Clean(socket)) > maxSocketPath:
		return "", fmt.Errorf("config.%s: the path of %.40s… is longer than a socket's may be, %d bytes", agentKey, text,
			maxSocketPath)
	// Tasks get the folder.
	case isShared(filepath.Dir(filepath.Clean(socket))):
		return "", fmt.Errorf("config.%s: %.80s is not in a folder of the agent's own; give one as in %s",
			agentKey, text, defaultAgent)
	}
	return filepath.Clean(socket), nil
}

// isShared says whether a folder is one of the host's, such as /run, whatever its path: /var/run is that too.
func isShared(folder string) bool {
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	return strings.Count(folder, "/") < 2
}
