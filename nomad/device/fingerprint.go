package device

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evenstep/evenstep/nomad/device/wire"
)

// lookPause is between two looks at the devices.
const lookPause = 2 * time.Second

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

// round looks at the devices and at their speeds, and tells what it knows after each: speeds come late where the core
// is slow.
func (s *server) round(ctx context.Context, tell func([]*wire.DeviceGroup) error) error {
	n := s.current()
	if n == nil {
		return tell(nil)
	}
	n.look(ctx, s.now())
	if err := tell(n.groups(s.now())); err != nil {
		return err
	}
	n.rates(ctx, s.now())
	return tell(n.groups(s.now()))
}

// groups are the devices as Nomad is told of them: those of one kind and type together.
func (n *node) groups(now time.Time) (groups []*wire.DeviceGroup) {
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
		healthy, why := n.inventory.health(s, now)
		device := &wire.DetectedDevice{ID: s.UUID, Healthy: healthy, HealthDescription: why}
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
