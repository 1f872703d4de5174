package agent

import (
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// What one user may keep open at a node's agent; docs/core.md lists them. These are our choices.
const (
	userConnections = 1024 // a worker has two
	userStreams     = 128  // a job has one, or one for each worker
)

// overflowUser is what the kernel says of a user who has no id in the agent's user namespace, as all such do.
const overflowUser = 65534

// kernel are credentials of a unix socket's server: a caller is the user who the kernel says made the connection.
type kernel struct{}

// uid is what the kernel said.
type uid uint32

func (uid) AuthType() string { return "kernel" }

func (kernel) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	l, ok := c.(*limitedConn)
	if !ok {
		return nil, nil, errors.New("not a connection of the agent's socket")
	}
	return c, l.user, nil
}

func (kernel) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("only servers ask the kernel")
}

func (kernel) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

func (k kernel) Clone() credentials.TransportCredentials { return k }

func (kernel) OverrideServerName(string) error { return nil }

// callingUser is whose call it is. Users who have no id here are not told from each other.
func callingUser(ctx context.Context) (uint32, error) {
	id, ok := peerOf(ctx)
	switch {
	case !ok:
		return 0, status.Error(codes.Unauthenticated, "the kernel does not say who calls")
	case id == overflowUser:
		return 0, status.Error(codes.Unauthenticated, "this user has no id in the user namespace of the node's agent")
	}
	return id, nil
}

// peerOf is what the kernel said.
func peerOf(ctx context.Context) (id uint32, ok bool) {
	if p, known := peer.FromContext(ctx); known {
		u, ok := p.AuthInfo.(uid)
		return uint32(u), ok
	}
	return 0, false
}

// peerUser asks the kernel who made a connection.
func peerUser(c *net.UnixConn) (uid, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil || err != nil {
		return 0, errors.Join(failed, err)
	}
	return uid(peer.Uid), nil
}

// counts is how much of something each user has.
type counts struct {
	most int

	mu   sync.Mutex
	open map[uint32]int
}

func newCounts(most int) *counts { return &counts{most: most, open: make(map[uint32]int)} }

// take counts one more, unless the user has the most already.
func (c *counts) take(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[id] >= c.most {
		return false
	}
	c.open[id]++
	return true
}

// admit is an interceptor: it counts the streams of each user, before anything of them is read.
func (c *counts) admit(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	id, _ := peerOf(s.Context())
	if !c.take(id) {
		return status.Errorf(codes.ResourceExhausted, "%d streams of uid %d are open at this node; end some", c.most, id)
	}
	defer c.giveBack(id)
	return handle(service, s)
}

func (c *counts) giveBack(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[id]--; c.open[id] == 0 {
		delete(c.open, id)
	}
}

// limitedListener takes connections of a unix socket whose users the kernel names, and drops what a user has too many of.
type limitedListener struct {
	net.Listener
	connections *counts
}

// Accept waits for a connection that may be.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if u, isUnix := c.(*net.UnixConn); isUnix {
			if id, err := peerUser(u); err == nil && l.connections.take(uint32(id)) {
				return &limitedConn{UnixConn: u, user: id, giveBack: sync.OnceFunc(func() { l.connections.giveBack(uint32(id)) })}, nil
			}
		}
		c.Close()
	}
}

// limitedConn is a connection that its user is charged with.
type limitedConn struct {
	*net.UnixConn
	user     uid
	giveBack func()
}

// Close ends it.
func (c *limitedConn) Close() error {
	c.giveBack()
	return c.UnixConn.Close()
}
