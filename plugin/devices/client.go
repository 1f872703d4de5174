package devices

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/plugin"
	devicesv1 "github.com/evenstep/evenstep/plugin/devices/v1"
)

const answerTimeout = 5 * time.Second

// Describe asks a plugin for its version. It takes as long as a start and that answer may.
func Describe(p *plugin.External) (version string, err error) {
	conn, err := p.Conn()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), plugin.DescribeTimeout)
	defer cancel()
	r, err := devicesv1.NewDevicesClient(conn).Describe(ctx, &devicesv1.DescribeRequest{})
	return plugin.VersionOf(r.GetVersion()), p.Fault(err)
}

// New returns a prober that asks the plugin. One that does not answer in time, since a driver's call may hang, is
// killed, and started again for a later probe.
func New(p *plugin.External) Prober { return &remote{p} }

type remote struct{ plugin *plugin.External }

func (r *remote) Probe(ctx context.Context) (Report, error) {
	conn, err := r.plugin.Conn()
	if err != nil {
		return Report{}, err
	}
	asked, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	report, err := Ask(asked, conn)
	switch {
	case status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil:
		err := fmt.Errorf("no answer within %v", answerTimeout)
		r.plugin.Kill(err)
		return Report{}, err
	case err != nil:
		return Report{}, r.plugin.Fault(err)
	}
	return report, nil
}

// Ask asks whoever serves the contract at the other end of the connection: a plugin, or a node's agent.
func Ask(ctx context.Context, conn grpc.ClientConnInterface) (Report, error) {
	response, err := devicesv1.NewDevicesClient(conn).Probe(ctx, &devicesv1.ProbeRequest{})
	if err != nil {
		return Report{}, err
	}
	report := fromWire(response)
	if err := report.Check(); err != nil {
		return Report{}, errors.New(plugin.Line(err.Error()))
	}
	return report, nil
}
