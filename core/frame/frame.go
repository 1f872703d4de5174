// Package frame lets a gRPC server or client hold a message before it is parsed: to pass it on as it is, or to look at how
// much it would become. Two bytes of an empty entry in a list become a hundred once they are parsed.
package frame

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	_ "google.golang.org/grpc/encoding/proto" // the codec below
)

// Frame is a message as it is on the wire. Hand a *Frame to SendMsg or RecvMsg of a stream with the Codec.
type Frame []byte

// Codec is the codec of gRPC's protobuf messages, which knows a *Frame too.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns the codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Marshal puts a message on the wire.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(*f)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal takes a message from the wire.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*Frame); ok {
		*f = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Parse is what the frame says.
func (f Frame) Parse(m proto.Message) error { return proto.Unmarshal(f, m) }

// Entries counts the entries of lists in the messages in the frame, but not on when there are more than the most: paths are
// the numbers of a field in the frame, and of the list in it. The error says that the frame is no message, as far as it
// was looked at.
func (f Frame) Entries(paths map[protowire.Number]protowire.Number, most int) (n int, err error) {
	err = fields(f, func(number protowire.Number, inner []byte) error {
		list, wanted := paths[number]
		if !wanted {
			return nil
		}
		return fields(inner, func(number protowire.Number, _ []byte) error {
			if number == list {
				n++
			}
			if n > most {
				return errEnough
			}
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

var errEnough = errors.New("enough is counted")

// fields shows the fields that have a length, and skips others.
func fields(message []byte, show func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, form, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("not a protobuf message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		var content []byte
		if form == protowire.BytesType {
			content, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(number, form, message)
		}
		if n < 0 {
			return fmt.Errorf("not a protobuf message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		if form == protowire.BytesType {
			if err := show(number, content); err != nil {
				return err
			}
		}
	}
	return nil
}
