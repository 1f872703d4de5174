package device

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evenstep/evenstep/nomad/device/wire"
)

const (
	lookPause = 2 * time.Second // between two looks at the devices
	// speedsPatience is how long devices are not told of before their speeds are known. Nomad waits as it starts.
	speedsPatience = 200 * time.Millisecond
)

// Fingerprint tells Nomad of the devices, at once and when something has changed, until Nomad ends the stream.
func (s *server) Fingerprint(
	_ *wire.FingerprintRequest, stream grpc.ServerStreamingServer[wire.FingerprintResponse],
) error {
	ctx := stream.Context()
	var sent *wire.FingerprintResponse
	tell := func(groups []*wire.DeviceGroup) error {
		now := &wire.FingerprintResponse{DeviceGroup: groups}
		if sent != nil && proto.Equal(sent, now) {
			return nil // Nomad would take it for a change
		}
		sent = now
		return stream.Send(now)
	}
	for ctx.Err() == nil {
		if err := s.round(ctx, tell); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookPause):
		}
	}
	return nil
}

// round looks at the devices and at their speeds, and tells what it knows. Where the core is slow it tells of the
// devices first; else of both at once, as Nomad would take speeds that are not told to be gone.
func (s *server) round(ctx context.Context, tell func([]*wire.DeviceGroup) error) error {
	n := s.current()
	if n == nil {
		return tell(nil)
	}
	if !n.look(ctx, s.now()) {
		return tell(n.groups())
	}
	asked := make(chan struct{})
	go func() {
		n.rates(ctx, s.now())
		close(asked)
	}()
	select {
	case <-asked:
	case <-time.After(s.patience):
		err := tell(n.groups())
		<-asked
		if err != nil {
			return err
		}
	}
	return tell(n.groups())
}

// groups are the devices as Nomad is told of them: those of one kind and type together.
func (n *node) groups() (groups []*wire.DeviceGroup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var group *wire.DeviceGroup
	for _, s := range n.inventory.all() {
		if group == nil || group.GetDeviceType() != string(s.Kind) || group.GetDeviceName() != s.Type {
			group = &wire.DeviceGroup{Vendor: Vendor, DeviceType: string(s.Kind), DeviceName: s.Type,
				Attributes: make(map[string]*wire.Attribute)}
			groups = append(groups, group)
			n.describeSpeeds(group)
		}
		device := &wire.DetectedDevice{ID: s.UUID, Healthy: s.why == "", HealthDescription: s.why}
		if s.PCI != "" {
			device.HwLocality = &wire.DeviceLocality{PciBusId: s.PCI}
		}
		group.Devices = append(group.Devices, device)
		describe(group.GetAttributes(), s)
	}
	return groups
}

func (n *node) describeSpeeds(group *wire.DeviceGroup) {
	for name, byType := range n.speeds.told {
		if rate := byType[group.GetDeviceName()]; rate > 0 {
			group.Attributes[name] = &wire.Attribute{Value: &wire.Attribute_FloatVal{FloatVal: rate}}
		}
	}
}

// describe adds what a device is like to what its group is like. Devices of a group are alike; where they are not, the
// group is like the least of them, so that a job gets what it asked for. Nothing in here changes while a node runs.
func describe(attributes map[string]*wire.Attribute, s *sighting) {
	least := func(name string, value int64, unit string) {
		if value == 0 {
			return // not known
		}
		if a, there := attributes[name]; there {
			value = min(value, a.GetIntVal())
		}
		attributes[name] = &wire.Attribute{Value: &wire.Attribute_IntVal{IntVal: value}, Unit: unit}
	}
	least("memory", int64(s.MemoryBytes>>20), "MiB")
	least("sm_clock", int64(math.Round(s.SMClockMaxMHz)), "MHz")
	least("memory_clock", int64(math.Round(s.MemoryClockMaxMHz)), "MHz")
	least("cores", int64(s.Cores), "")
	if s.ComputeCapability != "" {
		version := &wire.Attribute_StringVal{StringVal: s.ComputeCapability}
		attributes["compute_capability"] = &wire.Attribute{Value: version}
	}
}
