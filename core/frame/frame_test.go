package frame

import (
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

var workers = map[protowire.Number]protowire.Number{1: 4, 2: 3}

func open(workers int) *evenstepv1.BalanceRequest {
	o := &evenstepv1.Open{Job: "j", GlobalBatch: 8}
	for range workers {
		o.Workers = append(o.Workers, &evenstepv1.Worker{})
	}
	return &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}}
}

func report(workers int) *evenstepv1.BalanceRequest {
	r := &evenstepv1.StepReport{Step: 1 << 40}
	for range workers {
		r.Workers = append(r.Workers, &evenstepv1.WorkerReport{ComputeSeconds: 1, ThrottleReasons: []string{"a", "b"}})
	}
	return &evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{Report: r}}
}

func wire(t testing.TB, m proto.Message) Frame {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEntriesAreCountedBeforeTheyAreParsed(t *testing.T) {
	one := wire(t, open(3))
	for name, c := range map[string]struct {
		frame Frame
		want  int
	}{
		"an open":                       {one, 3},
		"a report":                      {wire(t, report(5)), 5},
		"nothing":                       {nil, 0},
		"an open in parts, which merge": {append(append(Frame{}, one...), one...), 6},
	} {
		if got, err := c.frame.Entries(workers, 6); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, c.want)
		}
	}
	for name, f := range map[string]Frame{"a tag alone": {0x0a}, "too short": one[:len(one)-1], "field 0": {0x02, 0x00}} {
		if n, err := f.Entries(workers, 6); err == nil {
			t.Errorf("%s: %d entries", name, n)
		}
	}
}

func TestTheCodecKnowsFramesAndMessages(t *testing.T) {
	c := NewCodec()
	data, err := c.Marshal(open(2))
	if err != nil {
		t.Fatal(err)
	}
	var f Frame
	if err := c.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if data, err = c.Marshal(&f); err != nil {
		t.Fatal(err)
	}
	back := new(evenstepv1.BalanceRequest)
	if err := c.Unmarshal(data, back); err != nil || !proto.Equal(back, open(2)) {
		t.Errorf("got %v, %v", back, err)
	}
	if c.Name() != "proto" {
		t.Errorf("its name is %s", c.Name())
	}
}

// What counts is never less than what is parsed.
func FuzzEntries(f *testing.F) {
	f.Add([]byte(wire(f, open(3))))
	f.Add([]byte(wire(f, report(2))))
	f.Add([]byte{0x0a, 0x02, 0x22, 0x00, 0x12, 0x02, 0x1a, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := Frame(data).Entries(workers, math.MaxInt)
		m := new(evenstepv1.BalanceRequest)
		if Frame(data).Parse(m) != nil {
			return
		}
		if parsed := len(m.GetOpen().GetWorkers()) + len(m.GetReport().GetWorkers()); err != nil || n < parsed {
			t.Errorf("%d entries, %v, and %d parsed", n, err, parsed)
		}
	})
}
