package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// agentTime bounds all that a hook says to the node's agent.
const agentTime = 400 * time.Millisecond

// agentSocket is where this node's agent listens, if it has one.
func (h Hooks) agentSocket() string { return filepath.Join(filepath.Dir(h.Folder), "agent.sock") }

// core connects to the core that this node's agent leads to. It is nil where there is no agent, or one without a core: such
// an agent would refuse the job's stream, and a torchrun that is told of none starts a core of its own. An error is of an
// agent that does not answer.
func (h Hooks) core(ctx context.Context) (*grpc.ClientConn, error) {
	socket := h.agentSocket()
	if _, err := os.Lstat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	r, err := healthv1.NewHealthClient(conn).Check(ctx,
		&healthv1.HealthCheckRequest{Service: evenstepv1.Balancer_ServiceDesc.ServiceName})
	if err == nil && r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
		return conn, nil
	}
	conn.Close()
	if code := status.Code(err); err == nil || code == codes.NotFound || code == codes.Unimplemented {
		return nil, nil
	}
	return nil, fmt.Errorf("the agent at %s does not answer: %w", socket, err)
}
