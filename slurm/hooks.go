package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenstep/evenstep/core/request"
)

// Hooks are what runs on the nodes: the prolog before a job, the task prolog before each task, the epilog after the job.
// None of them talks to Slurm, and whatever goes wrong in them is no reason for a job to fail.
//
// Where the node's agent leads to a core, the prolog registers the job there, and the epilog says that it is done. The prolog runs as root and is the only one that is told the comment. It keeps it for the task prolog, which runs as the
// user, in a file that only that user may read, until the epilog removes it.
type Hooks struct {
	Folder string // of the files: root's own, on the node
	Env    func(string) string
}

var (
	jobForm  = regexp.MustCompile(`^[0-9]{1,20}$`)
	nodeForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)
)

// node is this node's name.
func (h Hooks) node() string {
	if name := h.Env("SLURMD_NODENAME"); name != "" {
		return name
	}
	return "localhost"
}

// file is where the words of this job are kept on this node.
func (h Hooks) file() (string, error) {
	job, node := h.Env("SLURM_JOB_ID"), h.node()
	if !jobForm.MatchString(job) || !nodeForm.MatchString(node) {
		return "", errors.New("SLURM_JOB_ID or SLURMD_NODENAME: not as Slurm sets them; run by Slurm only")
	}
	return filepath.Join(h.Folder, job+"@"+node), nil
}

// Prolog keeps the words of the job's comment for its tasks, and registers the job with the core, if there is one. A job that did not ask for Evenstep leaves nothing.
func (h Hooks) Prolog() error {
	file, err := h.file()
	if err != nil {
		return err
	}
	r, note, err := ParseComment(h.Env("SLURM_JOB_COMMENT"))
	if r == nil || err != nil {
		return err
	}
	user, err := strconv.ParseUint(h.Env("SLURM_JOB_UID"), 10, 32)
	if err != nil {
		return errors.New("SLURM_JOB_UID: not a number; run by Slurm only")
	}
	if err := os.MkdirAll(h.Folder, 0o755); err != nil {
		return err
	}
	// What is written is what was understood, not what came.
	if err := replace(file, Comment(r, Note{Sizes: note.Sizes}), int(user)); err != nil {
		return err
	}
	return h.register(r, uint32(user))
}

// replace writes the file whole or not at all, for one user to read.
func replace(file, text string, user int) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), ".new")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(text)
	if os.Geteuid() == 0 {
		err = errors.Join(err, temporary.Chown(user, -1))
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}

// Epilog removes what the prolog kept, and tells the core, if there is one, that the job is done here.
func (h Hooks) Epilog() error {
	file, err := h.file()
	if err != nil {
		return err
	}
	switch err := os.Remove(file); {
	case errors.Is(err, os.ErrNotExist):
		return nil // none of ours
	case err != nil:
		return err
	}
	return h.unregister()
}

// mostKept bounds what is read of the file.
const mostKept = 2 * maxComment

// TaskProlog writes export lines for a task of the job, in one piece: what Slurm is to add to its environment. What the
// user set already stays. A step's task is a worker where there are as many tasks as batch sizes.
func (h Hooks) TaskProlog(out io.Writer) error {
	file, err := h.file()
	if err != nil {
		return err
	}
	text, err := readKept(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r, note, err := ParseComment(text)
	if r == nil || err != nil {
		return err
	}
	var lines bytes.Buffer
	// Not the user's to keep: what the batch step was told is not true on other nodes.
	if rank := h.nodeRank(); rank >= 0 {
		fmt.Fprintf(&lines, "export EVENSTEP_NODE_RANK=%d\n", rank)
	}
	for _, v := range h.variables(r, note.Sizes) {
		if h.Env(v[0]) == "" {
			fmt.Fprintf(&lines, "export %s=%s\n", v[0], v[1])
		}
	}
	_, err = out.Write(lines.Bytes())
	return err
}

func readKept(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostKept))
	return string(text), err
}

// variables are what the task is told.
func (h Hooks) variables(r *request.Request, sizes []int) [][2]string {
	variables := [][2]string{
		{"EVENSTEP_JOB", h.jobName()},
		{"EVENSTEP_WORKLOAD", r.Workload},
		{"EVENSTEP_GLOBAL_BATCH", strconv.Itoa(r.GlobalBatch)},
	}
	if r.Policy != "" {
		variables = append(variables, [2]string{"EVENSTEP_POLICY", r.Policy})
	}
	if h.hasCore() {
		variables = append(variables, [2]string{"EVENSTEP_ADDR", "unix:" + h.agentSocket()})
	}
	if sum(sizes) != r.GlobalBatch {
		return variables
	}
	words := make([]string, len(sizes))
	for i, n := range sizes {
		words[i] = strconv.Itoa(n)
	}
	variables = append(variables, [2]string{"EVENSTEP_BATCH_SIZES", strings.Join(words, ",")})
	rank, err := strconv.Atoi(h.Env("SLURM_PROCID"))
	// The batch step is one task that launches others.
	_, inStep := strconv.ParseUint(h.Env("SLURM_STEP_ID"), 10, 31)
	if err == nil && inStep == nil && h.Env("SLURM_STEP_NUM_TASKS") == strconv.Itoa(len(sizes)) && 0 <= rank && rank < len(sizes) {
		variables = append(variables, [2]string{"EVENSTEP_BATCH_SIZE", words[rank]})
	}
	return variables
}

// nodeRank is this node's place among the nodes of the job, in the order of the plan and its batch sizes, which is Slurm's;
// -1 where Slurm does not tell.
func (h Hooks) nodeRank() int {
	names, err := hosts(h.Env("SLURM_JOB_NODELIST"))
	if err != nil {
		return -1
	}
	return slices.Index(names, h.node())
}

func sum(sizes []int) (total int) {
	for _, n := range sizes {
		total += n
	}
	return total
}

// hasCore says whether the node's agent leads to a core: an address that leads nowhere would cost the job its own core.
func (h Hooks) hasCore() bool {
	ctx, cancel := context.WithTimeout(context.Background(), agentTime)
	defer cancel()
	conn, err := h.core(ctx)
	if conn == nil || err != nil {
		return false
	}
	conn.Close()
	return true
}
