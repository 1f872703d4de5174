package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/request"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	// agentTime bounds all that a hook says to the node's agent.
	agentTime = 400 * time.Millisecond
	// faultFile keeps what a hook said last of the way to the core, which is not said again while it stays so.
	faultFile = ".core"
)

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

// jobName is what the core knows the job by; what torchrun and workers call it begins with that.
func (h Hooks) jobName() string { return "slurm-" + h.Env("SLURM_JOB_ID") }

// register makes the job the user's at the core, if there is one, with what is known of it here.
func (h Hooks) register(r *request.Request, user uint32) error {
	return h.tellCore(func(ctx context.Context, jobs evenstepv1.JobsClient) error {
		_, err := jobs.Register(ctx, &evenstepv1.RegisterRequest{
			Job: h.jobName(), Uid: user, Workload: r.Workload, GlobalBatch: uint32(r.GlobalBatch),
			Node: h.node(), Devices: h.devices(),
		})
		return err
	})
}

// unregister says that the job is done on this node, so that the core keeps what it has shown.
func (h Hooks) unregister() error {
	return h.tellCore(func(ctx context.Context, jobs evenstepv1.JobsClient) error {
		_, err := jobs.Unregister(ctx, &evenstepv1.UnregisterRequest{Job: h.jobName(), Node: h.node()})
		return err
	})
}

// tellCore makes a call of the core, if there is one, in time. A fault is an error once, until it is another or gone: jobs
// train on without, and each would say the same.
func (h Hooks) tellCore(call func(context.Context, evenstepv1.JobsClient) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), agentTime)
	defer cancel()
	conn, err := h.core(ctx)
	whose := "agent"
	if conn != nil {
		defer conn.Close()
		whose = "core"
		if err = call(ctx, evenstepv1.NewJobsClient(conn)); err != nil {
			err = fmt.Errorf("the core behind %s does not take the job: %w", h.agentSocket(), err)
		}
	}
	file := filepath.Join(h.Folder, faultFile)
	if err == nil {
		_ = os.Remove(file) // most times it is not there
		return nil
	}
	// The words may be others each time, with a port that the kernel chose.
	fault := whose + " " + status.Code(err).String()
	if said, _ := readKept(file); said == fault {
		return nil
	}
	return errors.Join(err, replace(file, fault, os.Geteuid()))
}

// devices are the job's on this node, as Slurm numbers them; none where Slurm does not tell.
func (h Hooks) devices() []string {
	return strings.FieldsFunc(h.Env("SLURM_JOB_GPUS"), func(r rune) bool { return r == ',' })
}
