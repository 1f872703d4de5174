package slurm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenstep/evenstep/core/reconcile"
	"github.com/evenstep/evenstep/core/request"
)

func TestHosts(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "",
		"(null)":                "",
		"m1":                    "m1",
		"m[1-3,07],head":        "m1 m2 m3 m07 head",
		"gpu[08-11]":            "gpu08 gpu09 gpu10 gpu11",
		"rack[1-2]n[1-2]x":      "rack1n1x rack1n2x rack2n1x rack2n2x",
		"m[3-1]":                "error",
		"m[1":                   "error",
		"m]1":                   "error",
		"m[1-99999999]":         "error",
		"a[1-999]b[1-999]":      "error",
		"m[-1]":                 "error",
		"m1,,m2":                "error",
		strings.Repeat("[", 99): "error",
	} {
		names, err := hosts(list)
		got := strings.Join(names, " ")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}

func TestParseComment(t *testing.T) {
	const words = "evenstep workload=w global_batch=100 samples=5"
	r := &request.Request{Workload: "w", GlobalBatch: 100, Samples: 5}
	for name, c := range map[string]struct {
		comment string
		request *request.Request
		want    Note
	}{
		"no note":                     {words, r, Note{}},
		"held":                        {words + " | held", r, Note{Held: true}},
		"released":                    {words + " | released", r, Note{Released: true}},
		"named":                       {words + " | nodes=2-4 require=m[1-2] sizes=30x2,40", r, Note{MinNodes: 2, MaxNodes: 4, Required: "m[1-2]", Sizes: []int{30, 30, 40}}},
		"a note of the user's":        {words + " | see wiki", r, Note{}},
		"nodes the wrong way round":   {words + " | held nodes=4-2", r, Note{}},
		"too many sizes":              {words + " | sizes=1x99999", r, Note{}},
		"a size of 0":                 {words + " | sizes=0", r, Note{}},
		"a name that is none":         {words + " | require=$(m)", r, Note{}},
		"another's, with a bar":       {"mine | held", nil, Note{}},
		"another's, that mentions it": {"for evenstep | held", nil, Note{}},
	} {
		r, note, err := ParseComment(c.comment)
		if diff := cmp.Diff(c.request, r) + cmp.Diff(c.want, note); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
		if r != nil && note.Sizes != nil {
			if got := Comment(r, note); got != c.comment {
				t.Errorf("%s: comes back as %q", name, got)
			}
		}
	}
}

func TestSizesThatSlurmHasNoRoomForAreLeftOut(t *testing.T) {
	n := Note{MinNodes: 1, MaxNodes: 999, Sizes: make([]int, 999)}
	for i := range n.Sizes {
		n.Sizes[i] = 1000 + i
	}
	r := &request.Request{Workload: "w", GlobalBatch: 1 << 20, Samples: 5}
	if got, want := Comment(r, n), "evenstep workload=w global_batch=1048576 samples=5 | nodes=1-999"; got != want {
		t.Errorf("got %s", got)
	}
}

// No comment makes Evenstep panic or write one that Slurm refuses, and what it writes it reads again.
func FuzzParseComment(f *testing.F) {
	f.Add("evenstep workload=w global_batch=100 samples=5 | nodes=2-4 require=m[1-2] sizes=30x2,40")
	f.Add("evenstep workload=w global_batch=100 samples=5 | held released")
	f.Fuzz(func(t *testing.T, comment string) {
		r, note, err := ParseComment(comment)
		if r == nil || err != nil {
			return
		}
		written := Comment(r, note)
		if len(written) > 2*maxComment {
			t.Errorf("%d bytes", len(written))
		}
		again, noteAgain, err := ParseComment(written)
		if note.Sizes != nil && noteAgain.Sizes == nil {
			note.Sizes = nil
		}
		if diff := cmp.Diff(r, again) + cmp.Diff(note, noteAgain); diff != "" || err != nil {
			t.Errorf("%q: %v %s", written, err, diff)
		}
	})
}

func FuzzHosts(f *testing.F) {
	f.Add("rack[1-2]n[01-10],head")
	f.Fuzz(func(t *testing.T, list string) {
		if names, err := hosts(list); err == nil && len(names) > mostHosts {
			t.Errorf("%d names", len(names))
		}
	})
}

func TestPerNode(t *testing.T) {
	for text, want := range map[string]string{
		"gres:gpu:1": " 1", "gres:gpu": " 1", "gres:gpu:a100:2": "a100 2", "gres:gpu:a100": "a100 1", // up to 23.11
		"gres/gpu:4": " 4", "gres/gpu:a100:4": "a100 4", "gres/gpu:a100=4": "a100 4", "gres/gpu=2": " 2", // later
		"": "error", "gres:shard:1": "error", "gres:gpu:1,gres:shard:1": "error", "gres:gpu:0": "error", "gres:gpu:a:b:1": "error",
		"cpu:2": "error",
	} {
		typ, count, err := perNode(text)
		got := fmt.Sprintf("%s %d", typ, count)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"slurm 22.05.8\n": "22.05.8 true true", "slurm-wlm 22.05.8": "22.05.8 true true", "slurm 23.02.1": "23.02.1 true false",
		"slurm 23.02.2": "23.02.2 true true", "slurm 25.11.0-0rc1": "25.11.0 true true", "slurm 20.11.9": "20.11.9 false true",
		"slurm 26.05.0": "26.05.0 false true", "slurm": "error", "": "error",
	} {
		v, err := parseVersion(text)
		got := fmt.Sprint(v, v.supported(), v.clears())
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestParseNodes(t *testing.T) {
	const rest = " CPULoad=0.1 AvailableFeatures=ib ActiveFeatures=%s Gres=%s GresDrain=N/A GresUsed=%s NodeAddr=x State=%s Partitions=main Reason=State=IDLE [root@x]"
	line := func(name, alloc, features, gres, used, state string) string {
		return "NodeName=" + name + " Arch=x86_64 CPUAlloc=" + alloc + " CPUEfctv=8 CPUTot=8" + fmt.Sprintf(rest, features, gres, used, state) + "\n"
	}
	text := line("a", "0", "ib,big", "gpu:a100:4(S:0-1),gpu:v100:2(S:0,1),shard:8", "gpu:a100:1(IDX:0),gpu:v100:0(IDX:N/A)", "MIXED+CLOUD") +
		line("b", "8", "(null)", "gpu:2", "gpu:0", "ALLOCATED") + line("c", "0", "(null)", "(null)", "gpu:0", "IDLE+DRAIN") +
		line("d", "0", "(null)", "gpu:x:1", "gpu:x:0", "IDLE*") + line("e", "0", "(null)", "gpu:x:1", "gpu:x:0", "IDLE+PLANNED") + "\n"
	type told struct {
		Name          string
		Usable        bool
		Devices, Used map[string]int
	}
	var got []told
	for _, n := range parseNodes(text) {
		got = append(got, told{n.name, n.usable, n.devices, n.used})
	}
	want := []told{
		{"a", true, map[string]int{"a100": 4, "v100": 2}, map[string]int{"a100": 1, "v100": 0}},
		{"b", true, map[string]int{"gpu": 2}, map[string]int{"gpu": 0}},
		{"c", false, map[string]int{}, map[string]int{"gpu": 0}},
		{"d", false, map[string]int{"x": 1}, map[string]int{"x": 0}},
		{"e", true, map[string]int{"x": 1}, map[string]int{"x": 0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRoom(t *testing.T) {
	n := parseNodes("NodeName=m1 Arch=x86_64 CoresPerSocket=2 CPUAlloc=3 CPUEfctv=7 CPUTot=8 State=MIXED ThreadsPerCore=2 " +
		"RealMemory=4000 AllocMem=1500 FreeMem=77 MemSpecLimit=100\n" + "NodeName=m2 CPUAlloc=3 CPUTot=8 State=MIXED RealMemory=4000 AllocMem=0\n")
	got := fmt.Sprint(n[0].room, n[0].left, n[0].threads, n[1].room, n[1].left, n[1].threads)
	if want := "{7 3900} {4 2400} 2 {8 4000} {5 4000} 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What Slurm 22.05.8 shows of jobs, and of the last four what later versions do by their documentation; of two devices on
// each of at least two nodes with two threads a core.
func TestNeeds(t *testing.T) {
	for text, want := range map[string]string{
		"NumCPUs=2 NumTasks=2 CPUs/Task=1 MinCPUsNode=1 MinMemoryNode=0":     "{2 0}",
		"NumCPUs=12 NumTasks=4 CPUs/Task=3 MinCPUsNode=6 MinMemoryCPU=10M":   "{6 60}",
		"NumCPUs=5 NumTasks=5 CPUs/Task=1 MinCPUsNode=1 MinMemoryNode=1G":    "{4 1024}",
		"NumCPUs=1 NumTasks=1 CPUs/Task=1 MinCPUsNode=5 MinMemoryNode=1500M": "{6 1500}",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryCPU=10M CpusPerTres=gres:gpu:3":    "{6 60}",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryCPU=10M MemPerTres=gres:gpu:300":   "{2 600}",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=2.50G":                        "{2 2560}",
		"NumCPUs=8-16 MinCPUsNode=1 MinMemoryNode=1T":                        "{4 1048576}",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=0 CpusPerTres=gres/gpu:3":     "{6 0}",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=0 MemPerTres=gres/gpu=300":    "{2 600}",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=much":                         "error",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=-1":                           "error",
		"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=99999999999T":                 "error",
		"": "{2 0}",
	} {
		n, err := parseNeeds(text, 2)
		got := fmt.Sprint(n.room(2, 2))
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestParseDetail(t *testing.T) {
	line := func(edits ...string) string {
		text := "JobId=7 JobName=train UserId=u(1) JobState=PENDING Reason=BeginTime EligibleTime=2026-11-29T20:47:45 " +
			"NumNodes=4-4 NumCPUs=2 TRES=cpu=2,mem=2000M,node=2,billing=2 OverSubscribe=OK Contiguous=0 Licenses=(null) " +
			"Command=/home/u/job.sh TresPerNode=gres:gpu:1"
		for i := 0; i < len(edits); i += 2 {
			text = strings.Replace(text, edits[i], edits[i+1], 1)
		}
		return text
	}
	for name, c := range map[string]struct {
		text, want string
	}{
		"a range, of which Slurm guesses the begin":    {line(), "2-4 "},
		"the same in later versions":                   {line(" TRES=cpu=2,mem=2000M,node=2,billing=2", " ReqTRES=cpu=2,mem=2000M,node=2,billing=2,gres/gpu=2 AllocTRES=(null)"), "2-4 "},
		"one number":                                   {line("NumNodes=4-4", "NumNodes=2"), "2-2 "},
		"a name that looks like a field":               {line("JobName=train", "JobName=x NumNodes=1-99"), "0-0 NumNodes= is there 2 times in what scontrol shows of it"},
		"a path that looks like a field":               {line("/job.sh", "/ EligibleTime=now"), "0-0 EligibleTime= is there 2 times in what scontrol shows of it"},
		"devices by job":                               {line("TresPerNode", "TresPerJob"), "2-4 it asks for devices by job; give --gres=gpu:N for each node"},
		"devices by task":                              {line("TresPerNode=gres:gpu", "TresPerTask=cpu=2,gres/gpu"), "2-4 it asks for devices by task; give --gres=gpu:N for each node"},
		"cores by task, as later versions show them":   {line("TresPerNode=gres:gpu:1", "TresPerTask=cpu=2"), "2-4 "},
		"memory that is none":                          {line("NumCPUs=2", "NumCPUs=2 MinMemoryNode=x"), `2-4 scontrol show job: memory is "x"; want a number with K, M, G, T or P`},
		"nodes of its own":                             {line("OverSubscribe=OK", "OverSubscribe=NO"), "2-4 it asks for nodes of its own"},
		"side by side":                                 {line("Contiguous=0", "Contiguous=1"), "2-4 it asks for nodes side by side"},
		"a number of nodes that is none":               {line("NumNodes=4-4", "NumNodes=few"), "error"},
		"nothing, as of a job that is gone in between": {"", "0-0 NumNodes= is there 0 times in what scontrol shows of it"},
	} {
		d, err := parseDetail(c.text)
		got := fmt.Sprintf("%d-%d %s", d.minNodes, d.maxNodes, d.odd)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestNoCommentPretendsToBeAJob(t *testing.T) {
	mark := "|mark|"
	record := func(id, comment string) string {
		values := []string{id, "PENDING", "None", "main", "1000", "2026-11-29T20:47:45", "N/A", "(null)", "", "", "(null)", "(null)", "(null)", "gres:gpu:1", "", comment}
		return mark + strings.Join(values, mark) + "\n"
	}
	entries, err := parseQueue(record("7", "a\n|other|8|other|PENDING\n")+record("9_1", "(null)"), mark)
	if err != nil || len(entries) != 2 || entries[0].id != "7" || entries[1].id != "9_1" || entries[0].comment != "a\n|other|8|other|PENDING\n" {
		t.Errorf("%v %+v", err, entries)
	}
	for _, text := range []string{"slurm_load_jobs error\n", mark + "7" + mark + "PENDING\n"} {
		if _, err := parseQueue(text, mark); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		` --nodes=2-4  --gres=gpu:1`:                 {"--nodes=2-4", "--gres=gpu:1"},
		` --comment="evenstep workload=w" # --begin`: {"--comment=evenstep workload=w"},
		` --comment 'a "b" \' x\ y "\""`:             {"--comment", `a "b" \`, "x y", `"`},
		` ""`:                                        {""},
	} {
		if diff := cmp.Diff(want, split(line)); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
}

// What a job waits for besides us.
func TestJobsThatAreLeftAlone(t *testing.T) {
	now := time.Date(2026, 11, 29, 20, 50, 0, 0, time.UTC)
	const asks = "evenstep workload=w global_batch=8 samples=5"
	for name, c := range map[string]struct {
		comment string
		detail  detail
		why     string
		held    bool
	}{
		"put back into the queue after it ran": {asks + " | nodes=1-1", detail{eligible: now.Add(2 * time.Minute), minNodes: 1, maxNodes: 1},
			"it was started before, and Slurm has it wait to start again", false},
		"named by a clock that is ahead": {asks + " | nodes=1-1", detail{eligible: now.Add(time.Second), minNodes: 1, maxNodes: 1}, "", false},
		"held, but scontrol's words are not to be trusted": {asks + " | held", detail{odd: "a name that is there twice"},
			"a name that is there twice", true},
	} {
		v := &view{
			now: now, nodes: parseNodes("NodeName=m1 CPUTot=8 Gres=gpu:x:1 GresUsed=gpu:x:0 State=IDLE\n"),
			partitions: map[string]group{"main": {true, []string{"m1"}}},
			queue: []entry{{id: "7", state: "PENDING", partition: "main", perNode: "gres:gpu:1", comment: c.comment,
				begins: now.Add(time.Minute)}},
			details: map[string]detail{"7": c.detail},
		}
		if j := v.snapshot().Jobs[0]; j.Unsteerable != c.why || j.Held != c.held {
			t.Errorf("%s: %q, held %t", name, j.Unsteerable, j.Held)
		}
	}
}

// The owner of a job may write the note as well as Evenstep; it never gives the job more nodes than it has.
func TestANoteGivesNoMoreThanTheJobHas(t *testing.T) {
	v := &view{
		now:        time.Date(2026, 11, 29, 20, 50, 0, 0, time.UTC),
		nodes:      parseNodes("NodeName=m1 CPUTot=8 Gres=gpu:x:1 GresUsed=gpu:x:0 State=IDLE\nNodeName=m2 CPUTot=8 Gres=gpu:x:1 GresUsed=gpu:x:0 State=IDLE\n"),
		partitions: map[string]group{"main": {true, []string{"m1", "m2"}}},
		queue: []entry{{
			id: "7", state: "PENDING", partition: "main", perNode: "gres:gpu:1", required: "m1",
			comment: "evenstep workload=w global_batch=8 samples=5 | nodes=1-9999 require=m9",
		}},
		details: map[string]detail{"7": {eligible: time.Date(2026, 11, 29, 20, 49, 0, 0, time.UTC), minNodes: 1, maxNodes: 1}},
	}
	j := v.snapshot().Jobs[0]
	if j.State != reconcile.Named || j.MinNodes != 1 || j.MaxNodes != 1 || j.For != time.Minute {
		t.Errorf("%+v", j)
	}
	s := &Scheduler{version: version{22, 5, 8}, view: v}
	got, err := s.Arguments(reconcile.Update{Job: "7", Kind: reconcile.Release})
	want := []string{"update", "JobId=7", "NumNodes=1-1", "ReqNodeList=m9", "StartTime=now",
		"Comment=evenstep workload=w global_batch=8 samples=5 | released"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	s.version = version{23, 2, 0}
	if got, _ := s.Arguments(reconcile.Update{Job: "7", Kind: reconcile.Release}); len(got) != 4 {
		t.Errorf("23.02.0: %q", got)
	}
}
