package nomadtest

import (
	"embed"
	"encoding/json"
	"net/http"
	"path"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// recorded are specifications in HCL, each beside the JSON that Nomad 1.6.5 makes of it.
//
//go:embed testdata
var recorded embed.FS

// parse answers what Nomad answered for the same text.
func parse(r *http.Request) answer {
	var in api.JobsParseRequest
	if bad := decode(r, &in); bad != nil {
		return *bad
	}
	files, _ := recorded.ReadDir("testdata")
	for _, file := range files {
		name := path.Join("testdata", file.Name())
		text, _ := recorded.ReadFile(name)
		if !strings.HasSuffix(name, ".hcl") || string(text) != in.JobHCL {
			continue
		}
		answered, err := recorded.ReadFile(strings.TrimSuffix(name, ".hcl") + ".json")
		if err == nil {
			return answer{value: json.RawMessage(answered)}
		}
	}
	return refuse(400, "Failed to parse job: the fake has no answer recorded")
}
