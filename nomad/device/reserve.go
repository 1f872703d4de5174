package device

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/nomad/device/wire"
)

// Reserve says how a task gets at its devices and at the agent, in a container and outside of one.
func (s *server) Reserve(ctx context.Context, r *wire.ReserveRequest) (*wire.ReserveResponse, error) {
	n := s.current()
	if n == nil {
		return nil, status.Error(codes.FailedPrecondition, "the configuration of the plugin is wrong, as its log says")
	}
	// Nomad may have the devices from a process that has died since, and another agent may be there by now.
	answered := n.look(ctx, s.now())
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range r.GetDeviceIds() {
		switch {
		case n.inventory.seen[id] != nil:
		case answered:
			return nil, status.Errorf(codes.NotFound, "device %.80q is not on this node", id)
		default:
			return nil, status.Errorf(codes.Unavailable, "device %.80q is not known: the agent at unix:%s does not answer",
				id, n.socket)
		}
	}
	visible := strings.Join(r.GetDeviceIds(), ",")
	address := "unix:" + n.socket
	reservation := &wire.ContainerReservation{Envs: map[string]string{
		"CUDA_VISIBLE_DEVICES":   visible,
		"NVIDIA_VISIBLE_DEVICES": visible, // for NVIDIA's container runtime, which mounts the devices
		"EVENSTEP_AGENT_ADDR":    address,
	}}
	if n.toCore {
		reservation.Envs["EVENSTEP_ADDR"] = address
	}
	// The folder, since an agent that restarts makes the socket anew; under the same path, so that the address holds in
	// both worlds. A socket in what cannot be written to can be connected to all the same.
	folder := filepath.Dir(n.socket)
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		reservation.Mounts = []*wire.Mount{{TaskPath: folder, HostPath: folder, ReadOnly: true}}
	}
	return &wire.ReserveResponse{ContainerRes: reservation}, nil
}
