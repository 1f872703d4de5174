package profile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder is the id of a process that has the file open, one that locks it before one that waits for it; 0 when it is
// another user's, whose open files cannot be seen.
func holder(path string) (pid int) {
	file, err := os.Stat(path)
	if err != nil {
		return 0
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || filepath.Base(to) != filepath.Base(path) {
			continue
		}
		open, err := os.Stat(link)
		if err != nil || !os.SameFile(open, file) {
			continue
		}
		parts := strings.Split(link, "/")
		id, _ := strconv.Atoi(parts[2])
		if id == os.Getpid() {
			continue
		}
		info, _ := os.ReadFile("/proc/" + parts[2] + "/fdinfo/" + parts[4])
		if pid == 0 || strings.Contains(string(info), "FLOCK") {
			pid = id
		}
	}
	return pid
}
