package device

import (
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/evenstep/evenstep/nomad/device/wire"
	"github.com/evenstep/evenstep/plugin/devices"
)

const leastInterval = time.Second // between two measurements: the agent looks as often

// Stats says how the devices do, at the interval, until Nomad ends the stream.
func (s *server) Stats(r *wire.StatsRequest, stream grpc.ServerStreamingServer[wire.StatsResponse]) error {
	ctx := stream.Context()
	interval := max(r.GetCollectionInterval().AsDuration(), leastInterval)
	for ctx.Err() == nil {
		if n := s.current(); n != nil {
			answered := n.look(ctx, s.now())
			if err := stream.Send(&wire.StatsResponse{Groups: n.measured(answered, s.now())}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	return nil
}

// measured is how the devices do, as Nomad shows it. Where nothing is known it says why: Nomad would go on to show what
// it was told last.
func (n *node) measured(answered bool, now time.Time) (groups []*wire.DeviceGroupStats) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var group *wire.DeviceGroupStats
	for _, s := range n.inventory.all() {
		if group == nil || group.GetType() != string(s.Kind) || group.GetName() != s.Type {
			group = &wire.DeviceGroupStats{Vendor: Vendor, Type: string(s.Kind), Name: s.Type,
				InstanceStats: make(map[string]*wire.DeviceStats)}
			groups = append(groups, group)
		}
		stats := &wire.DeviceStats{Stats: new(wire.StatObject), Timestamp: timestamppb.New(now)}
		switch {
		case !answered:
			stats.Summary = text("the agent does not answer", "")
		case !s.missing.IsZero():
			stats.Summary = text("the agent does not see it", "")
		default:
			stats.Stats.Attributes = measure(&s.Device)
			stats.Summary = stats.GetStats().GetAttributes()["Memory"]
		}
		if stats.GetSummary() == nil {
			stats.Summary = text("", "nothing is known of its memory")
		}
		group.InstanceStats[s.UUID] = stats
	}
	return groups
}

// measure is what is known of a device, by the names that people are shown.
func measure(d *devices.Device) map[string]*wire.StatValue {
	values := make(map[string]*wire.StatValue)
	if d.MemoryFreeBytes != nil {
		values["Memory"] = whole((d.MemoryBytes-*d.MemoryFreeBytes)>>20, d.MemoryBytes>>20, "MiB", "in use, of all")
	}
	if d.SMClockMHz != nil {
		values["SM clock"] = number(*d.SMClockMHz, d.SMClockMaxMHz, "MHz", "now, of the highest")
		why := strings.Join(d.Throttle, ", ")
		if why == "" {
			why = "no"
		}
		values["Throttled"] = text(why, "why it runs slower than it could")
	}
	if d.PowerWatts != nil {
		limit := 0.0
		if d.PowerLimitWatts != nil {
			limit = *d.PowerLimitWatts
		}
		values["Power"] = number(*d.PowerWatts, limit, "W", "drawn, of the limit")
	}
	if d.TemperatureCelsius != nil {
		values["Temperature"] = number(*d.TemperatureCelsius, 0, "C", "")
	}
	if d.ECCErrors != nil {
		values["ECC errors"] = whole(min(*d.ECCErrors, math.MaxInt64), 0, "", "uncorrected, since the driver began")
	}
	return values
}

// whole is a whole number, of another one unless that is 0.
func whole(value, of uint64, unit, description string) *wire.StatValue {
	v := &wire.StatValue{IntNumeratorVal: wrapperspb.Int64(int64(value)), Unit: unit, Desc: description}
	if of > 0 {
		v.IntDenominatorVal = wrapperspb.Int64(int64(of))
	}
	return v
}

// number is one, of another one unless that is 0.
func number(value, of float64, unit, description string) *wire.StatValue {
	v := &wire.StatValue{FloatNumeratorVal: wrapperspb.Double(value), Unit: unit, Desc: description}
	if of > 0 {
		v.FloatDenominatorVal = wrapperspb.Double(of)
	}
	return v
}

func text(value, description string) *wire.StatValue {
	return &wire.StatValue{StringVal: wrapperspb.String(value), Desc: description}
}
