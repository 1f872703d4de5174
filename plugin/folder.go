// Package plugin is the seam for programs of others: executables named evenstep-<kind>-<name> in a folder, which
// evenstep starts, asks over gRPC and ends (hashicorp/go-plugin). A plugin's kind says what it is asked; the packages
// policy, devices and scheduler below hold one kind each. What is built in stands behind the same interfaces, in the process.
//
// A plugin can do nothing but answer. One that crashes, hangs or answers nonsense is reported, and what is built in
// takes its place.
package plugin

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// Kind is what a plugin is asked for.
type Kind string

// The kinds of plugins.
const (
	Policy    Kind = "policy"
	Devices   Kind = "devices"
	Scheduler Kind = "scheduler"
)

// sumsFile may be in a folder, in the format of sha256sum; then each plugin there must have its line in it.
const sumsFile = "SHA256SUMS"

var pluginName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Folder holds the plugins of a folder.
type Folder struct {
	Path    string
	Plugins []*External // by kind and name
}

// DefaultPath is the folder plugins beside the executable, whether it is there or not.
func DefaultPath() string {
	executable, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(executable), "plugins")
}

// Open looks through a folder and starts nothing. One that is not there, or has no name, has no plugins. What a plugin writes to its
// stderr goes to the log.
func Open(path string, log hclog.Logger) (*Folder, error) {
	f := &Folder{}
	if path == "" {
		return f, nil
	}
	// What has no slash in its path would be looked for in PATH as it is started.
	path, err := filepath.Abs(path)
	if err != nil {
		return f, err
	}
	f.Path = path
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, err
	}
	sums, err := readSums(filepath.Join(path, sumsFile))
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), "evenstep-")
		kind, name, hasName := strings.Cut(rest, "-")
		if !ours || !hasName {
			continue
		}
		e := &External{Kind: Kind(kind), Name: name, Path: filepath.Join(path, entry.Name()), rest: leastRest,
			log: log}
		switch e.sum = sums[entry.Name()]; {
		case err != nil:
			e.Refused = err
		case sums != nil && e.sum == nil:
			e.Refused = fmt.Errorf("it has no line in %s; add it", filepath.Join(path, sumsFile))
		default:
			e.Refused = e.check()
		}
		f.Plugins = append(f.Plugins, e)
	}
	return f, nil
}

// OfKind are the plugins of a kind that are not refused.
func (f *Folder) OfKind(kind Kind) (plugins []*External) {
	for _, e := range f.Plugins {
		if e.Kind == kind && e.Refused == nil {
			plugins = append(plugins, e)
		}
	}
	return plugins
}

// Close ends the plugins that run.
func (f *Folder) Close() {
	ended := make(chan struct{})
	for _, e := range f.Plugins {
		go func() { e.Close(); ended <- struct{}{} }()
	}
	for range f.Plugins {
		<-ended
	}
}

// check says why the plugin must not be started, if so.
func (e *External) check() error {
	if e.Kind != Policy && e.Kind != Devices && e.Kind != Scheduler {
		return fmt.Errorf("its kind %.20q is none of policy, devices, scheduler", string(e.Kind))
	}
	if !pluginName.MatchString(e.Name) {
		return fmt.Errorf("its name %.70q is not 1 to 63 of a-z, 0-9 and -", e.Name)
	}
	info, err := checkFile(e.Path)
	if err == nil && info.Mode()&0o111 == 0 {
		err = fmt.Errorf("%s is not executable; chmod +x", e.Path)
	}
	return err
}

// checkFile says whether the path, which is absolute, leads to a file that nobody but the user and root can replace.
func checkFile(path string) (fs.FileInfo, error) {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(at)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", at)
	}
	if err := checkOwners(at); err != nil {
		return nil, err
	}
	// Through a link the file may be elsewhere than the folder, where the link itself is as easily replaced.
	return info, checkOwners(filepath.Dir(path))
}

// checkOwners says whether nobody but the user and root can replace the file or a folder on the way to it.
func checkOwners(path string) error {
	for {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		by := info.Sys().(*syscall.Stat_t)
		if by.Uid != 0 && int(by.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d, who could replace it; it must be root's or yours", path, by.Uid)
		}
		if othersWrite(info.Mode(), int(by.Gid), os.Geteuid()) {
			return fmt.Errorf("others may write to %s; chmod go-w", path)
		}
		if path == filepath.Dir(path) {
			return nil
		}
		path = filepath.Dir(path)
	}
}

// othersWrite says whether somebody else than the user may write to what has the mode and the group. A group with the
// number of the user is the user's own, as Debian and others make one for each. In a sticky folder, such as /tmp,
// everybody replaces only what is theirs.
func othersWrite(mode fs.FileMode, group, user int) bool {
	if mode.IsDir() && mode&fs.ModeSticky != 0 {
		return false
	}
	private := group == user && user != 0
	return mode&0o002 != 0 || mode&0o020 != 0 && !private
}

// readSums reads checksums by file name; nil where there is no such file.
func readSums(path string) (map[string][]byte, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, err := checkFile(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sums := make(map[string][]byte)
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		digits, name, _ := strings.Cut(lines.Text(), " ")
		sum, err := hex.DecodeString(digits)
		name = strings.TrimPrefix(strings.TrimPrefix(name, " "), "*") // as text, as binary
		if err != nil || len(sum) != 32 || name == "" {
			return nil, fmt.Errorf("%s:%d: not a line of sha256sum; write it with: sha256sum evenstep-*", path, number)
		}
		sums[name] = sum
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sums, nil
}
