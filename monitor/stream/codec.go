// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
)

// encoded is a message as it travels. It goes to any number of readers.
type encoded struct{ data mem.SliceBuffer }

// missing is an encoded message with a number of samples that its reader has missed: a message may be in parts, of which
// the last counts.
type missing struct {
	*encoded
	samples uint64
}

// fieldMissed is the number of Sample.missed.
const fieldMissed = protowire.Number(2)

func encode(m *telemetryv1.Sample) (*encoded, error) {
	data, err := protobuf.Marshal(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode sample %d: %v", m.GetSequence(), err)
	}
	return &encoded{data}, nil
}

// codec is gRPC's own, and sends what is encoded already as it is.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) { // a SliceBuffer has no count of its users: nobody frees it
	case *encoded:
		return mem.BufferSlice{m.data}, nil
	case missing:
		number := protowire.AppendVarint(protowire.AppendTag(nil, fieldMissed, protowire.VarintType), m.samples)
		return mem.BufferSlice{m.data, mem.SliceBuffer(number)}, nil
	}
	return c.CodecV2.Marshal(v)
}
