package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSocketPath is what a unix socket's address has room for, in bytes.
	maxSocketPath = 107
	// maxLockWait bounds the wait for another evenstep that is about to listen in the same folder.
	maxLockWait = 2 * time.Second
)

// address is where a server listens: network "unix" and a path, or "tcp" and host:port.
type address struct{ network, where string }

func (a address) String() string { return a.network + ":" + a.where }

func parseAddress(s string) (address, error) { return parseAddressOf("--listen", s) }

// parseAddressOf parses what the flag, or the variable, says.
func parseAddressOf(flag, s string) (address, error) {
	network, where, _ := strings.Cut(s, ":")
	a := address{network, where}
	switch network {
	case "unix":
		// A name that begins with @ is no file, and nothing says who may connect to it.
		if where == "" || where[0] == '@' {
			return a, fmt.Errorf("%s: %q has no path; give unix:PATH", flag, s)
		}
		if len(where) > maxSocketPath {
			return a, fmt.Errorf("%s: a path of %d bytes is too long for a unix socket; give at most %d",
				flag, len(where), maxSocketPath)
		}
		return a, nil
	case "tcp":
		if _, _, err := net.SplitHostPort(where); err != nil {
			return a, fmt.Errorf("%s: %q has no port; give tcp:HOST:PORT", flag, s)
		}
		return a, nil
	}
	return a, fmt.Errorf("%s: %q is neither unix:PATH nor tcp:HOST:PORT", flag, s)
}

// listen listens at the address, with the port in it that it got. An address that another process holds is unreachable.
func listen(ctx context.Context, a address) (net.Listener, address, error) {
	if a.network == "unix" {
		s, err := listenUnix(ctx, a.where, forOwner)
		return s, a, err
	}
	l, err := net.Listen("tcp", a.where)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, a, unreachable(fmt.Errorf("--listen: %s is in use%s", a, byProcess(portHolder(a.where))))
	case err != nil:
		return nil, a, badInput(fmt.Errorf("--listen: %w", err))
	}
	return l, address{"tcp", l.Addr().String()}, nil
}

// Who may connect to a unix socket, besides what its folder allows; as umasks.
const (
	forOwner = 0o177
	forAll   = 0o111
)

// socket is a listening unix socket. Closing it also removes its file.
type socket struct {
	net.Listener
	path  string
	file  os.FileInfo
	close func() error // once
}

// listenUnix makes the folder, if it is missing, for its owner alone, and the socket. A socket that nobody listens at any
// more is replaced.
func listenUnix(ctx context.Context, path string, umask int) (*socket, error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, badInput(fmt.Errorf("--listen: %w", err))
	}
	unlock, err := lockFolder(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := clearPath(path); err != nil {
		return nil, err
	}
	// Not by chmod: nobody else shall find the socket open for an instant.
	mask := unix.Umask(umask)
	l, err := net.Listen("unix", path)
	unix.Umask(mask)
	if err != nil {
		return nil, badInput(fmt.Errorf("--listen: %w", err))
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &socket{Listener: l, path: path, file: file}
	s.close = sync.OnceValue(s.closeNow)
	return s, nil
}

// Close removes the file, if it still is this socket's, and stops listening. Whoever closes again waits until that is
// done and gets the same error.
func (s *socket) Close() error { return s.close() }

// closeNow removes the file first: its inode number is not given to another socket while this one is open.
func (s *socket) closeNow() error {
	if unlock, err := lockFolder(context.Background(), filepath.Dir(s.path)); err == nil {
		defer unlock()
		if file, err := os.Lstat(s.path); err == nil && os.SameFile(file, s.file) {
			os.Remove(s.path)
		}
	}
	return s.Listener.Close()
}

// clearPath makes sure that nothing is at the path, or says what is.
func clearPath(path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return badInput(fmt.Errorf("--listen: %w", err))
	case file.Mode().Type() != os.ModeSocket:
		return badInput(fmt.Errorf("--listen: %s is not a socket; give a path that is free", path))
	}
	c, err := net.Dial("unix", path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case err != nil:
		return unreachable(fmt.Errorf("--listen: cannot tell who holds the socket: %w", err))
	}
	defer c.Close()
	return unreachable(fmt.Errorf("--listen: %s is in use%s", path, byProcess(socketHolder(c.(*net.UnixConn)))))
}

// lockFolder keeps other evensteps from making and removing sockets in the folder until unlock. In a folder that others
// can read, so can they: whoever keeps it locked for longer than maxLockWait is not waited for.
func lockFolder(ctx context.Context, folder string) (unlock func(), err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, badInput(fmt.Errorf("--listen: %w", err))
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	deadline := time.Now().Add(maxLockWait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, badInput(fmt.Errorf("--listen: locking %s: %w; give a path on a local disk", folder, err))
		case time.Now().After(deadline):
			return nil, unreachable(fmt.Errorf("--listen: another process keeps %s locked; give a path in a folder of yours",
				folder))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
