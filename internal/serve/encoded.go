// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"slices"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Encoded is a message in its wire format. One Encoded can go to any number of readers.
type Encoded struct{ parts mem.BufferSlice }

// NewEncoded makes a message of parts, whose fields add up as those of one message. The parts must not change afterwards.
func NewEncoded(parts ...[]byte) *Encoded {
	e := &Encoded{}
	for _, p := range parts {
		e.parts = append(e.parts, mem.SliceBuffer(p)) // without a count of users: nobody frees it
	}
	return e
}

// With is e with further fields. It shares the bytes of e.
func (e *Encoded) With(part []byte) *Encoded {
	return &Encoded{parts: append(slices.Clip(e.parts), mem.SliceBuffer(part))}
}

// Len is the size of the message in bytes.
func (e *Encoded) Len() int { return e.parts.Len() }

// Bytes is a copy of the message.
func (e *Encoded) Bytes() []byte { return e.parts.Materialize() }

// codec is gRPC's own, and sends what is Encoded as it is.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*Encoded); ok {
		return e.parts, nil
	}
	return c.CodecV2.Marshal(v)
}
