package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// socketHolder is the id of the process that listens at the other end of a unix socket; 0 when the kernel does not say,
// as for one in another container.
func socketHolder(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// portHolder is the id of a process that listens on the TCP port of host:port; 0 when it is another user's, whose open
// files cannot be seen.
func portHolder(hostport string) int {
	_, service, _ := net.SplitHostPort(hostport)
	port, err := net.LookupPort("tcp", service)
	if err != nil {
		return 0
	}
	sockets := listeners(port)
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && sockets[to] {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}

// listeners are the sockets that listen on the TCP port, as links to open files name them. The kernel's tables have a
// line for each socket: slot, local address:port, remote address:port, state, queues, timer, retransmits, user,
// timeout, inode.
func listeners(port int) map[string]bool {
	const listening = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	sockets := make(map[string]bool)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			columns := strings.Fields(line)
			if len(columns) > 9 && strings.HasSuffix(columns[1], suffix) && columns[3] == listening {
				sockets["socket:["+columns[9]+"]"] = true
			}
		}
	}
	return sockets
}

// byProcess completes "in use".
func byProcess(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf(" by process %d", pid)
}
