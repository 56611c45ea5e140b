// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
)

// encoded is a message as it travels. It goes to any number of readers.
type encoded struct{ data mem.SliceBuffer }

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
	if m, ok := v.(*encoded); ok {
		return mem.BufferSlice{m.data}, nil // a SliceBuffer has no count of its users: nobody frees it
	}
	return c.CodecV2.Marshal(v)
}
