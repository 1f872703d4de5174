package slurm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// All that differs from one version of Slurm to the next is in this file. 22.05 (Debian's) is what the tests run; the
// others, up to 25.11, are known by their documentation, and by the fixtures made of it in the tests.

// version is a release of Slurm: 22.05.8.
type version struct{ year, month, patch int }

var versionForm = regexp.MustCompile(`^slurm(?:-wlm)? ([0-9]{2})\.([0-9]{2})\.([0-9]{1,3})`)

// parseVersion reads what scontrol --version prints.
func parseVersion(text string) (version, error) {
	parts := versionForm.FindStringSubmatch(text)
	if parts == nil {
		return version{}, fmt.Errorf("scontrol --version: %.80q is no version of Slurm's", text)
	}
	var v version
	v.year, _ = strconv.Atoi(parts[1])
	v.month, _ = strconv.Atoi(parts[2])
	v.patch, _ = strconv.Atoi(parts[3])
	return v, nil
}

func (v version) String() string { return fmt.Sprintf("%02d.%02d.%d", v.year, v.month, v.patch) }

// number is for comparing.
func (v version) number() int { return (v.year*100+v.month)*1000 + v.patch }

// supported says whether the formats below are known to be this version's.
func (v version) supported() bool { return v.number() >= 2205000 && v.number() < 2512000 }

// clears says whether the list of required nodes may be emptied: that crashes slurmctld 23.02.0 and 23.02.1.
func (v version) clears() bool { return v.number() < 2302000 || v.number() > 2302001 }

// perNode reads the devices that a job asks for on each node: gres:gpu:a100:2 up to 23.11, gres/gpu:a100:2 or
// gres/gpu:a100=2 later. The type is empty where the job asks for any.
func perNode(text string) (typ string, count int, err error) {
	rest, is := strings.CutPrefix(text, "gres")
	if is && len(rest) > 0 && (rest[0] == ':' || rest[0] == '/') {
		rest, is = strings.CutPrefix(rest[1:], "gpu")
	}
	if !is || strings.Contains(rest, ",") {
		return "", 0, fmt.Errorf("it asks for %.80q on each node; only --gres=gpu:N and --gres=gpu:TYPE:N are steered", text)
	}
	parts := strings.FieldsFunc(rest, func(r rune) bool { return r == ':' || r == '=' })
	count = 1
	if len(parts) > 0 {
		if n, err := strconv.Atoi(parts[len(parts)-1]); err == nil {
			count, parts = n, parts[:len(parts)-1]
		}
	}
	if len(parts) > 1 || count < 1 {
		return "", 0, fmt.Errorf("it asks for %.80q on each node; only --gres=gpu:N and --gres=gpu:TYPE:N are steered", text)
	}
	if len(parts) == 1 {
		typ = parts[0]
	}
	return typ, count, nil
}

// perDevice is what a job asks for by device: gres:gpu:3 up to 23.11, gres/gpu:3 or gres/gpu=3 later; 0 where nothing.
func perDevice(text string) int {
	n, _ := strconv.Atoi(text[strings.LastIndexAny(text, ":=")+1:])
	return max(0, n)
}

// requestedNodes is the node count among the resources that a job asks for: in ReqTRES= from 23.02 on, in TRES= before;
// 0 where it is in neither.
func requestedNodes(job string) int {
	resources := field(job, "ReqTRES")
	if resources == "" {
		resources = field(job, "TRES")
	}
	for _, r := range strings.Split(resources, ",") {
		if count, is := strings.CutPrefix(r, "node="); is {
			n, _ := strconv.Atoi(count)
			return n
		}
	}
	return 0
}
