// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes of packets in bytes.
const (
	requestHeader  = 8 + 8*NArgs + 8
	responseHeader = 16
	// MaxRequest is the size of the longest request.
	MaxRequest = requestHeader + MaxText
	// MaxResponse is the size of the longest response.
	MaxResponse = responseHeader + 8*MaxVals + MaxText
)

// What Decode and Encode report; both are wrapped with the detail.
var (
	// ErrPacket: the packet is not of protocol.h's form.
	ErrPacket = errors.New("malformed packet")
	// ErrVersion: the packet's sender speaks another version.
	ErrVersion = errors.New("another protocol version")
)

// Request is one request packet.
type Request struct {
	Op   Op
	Args [NArgs]uint64
	Text string // at most MaxText bytes
}

// Response is one response packet.
type Response struct {
	Status Status
	Vals   []uint64 // at most MaxVals
	Text   string   // at most MaxText bytes; several strings are separated by '\n'
}

// The structs travel as they lie in memory: both ends are on one machine.
func order() binary.ByteOrder { return binary.NativeEndian }

// Encode returns the request's packet; it wraps ErrPacket when the text is too long.
func (r Request) Encode() ([]byte, error) {
	if len(r.Text) > MaxText {
		return nil, fmt.Errorf("encode request: text of %d bytes: %w", len(r.Text), ErrPacket)
	}
	b := make([]byte, requestHeader, requestHeader+len(r.Text))
	o := order()
	o.PutUint32(b[0:], Version)
	o.PutUint32(b[4:], uint32(r.Op))
	for i, a := range r.Args {
		o.PutUint64(b[8+8*i:], a)
	}
	o.PutUint32(b[8+8*NArgs:], uint32(len(r.Text))) // #nosec G115 -- at most MaxText
	return append(b, r.Text...), nil
}

// DecodeRequest reads a request packet; it wraps ErrVersion or ErrPacket.
func DecodeRequest(b []byte) (Request, error) {
	var r Request
	o := order()
	// The version is looked at first: a library of another build may have another header.
	if len(b) >= 4 && o.Uint32(b) != Version {
		return r, fmt.Errorf("decode request: version %d, want %d: %w", o.Uint32(b), Version, ErrVersion)
	}
	if len(b) < requestHeader {
		return r, fmt.Errorf("decode request: %d bytes: %w", len(b), ErrPacket)
	}
	n := o.Uint32(b[8+8*NArgs:])
	pad := o.Uint32(b[12+8*NArgs:])
	if n > MaxText || int(n) != len(b)-requestHeader || pad != 0 {
		return r, fmt.Errorf("decode request: %d bytes with text length %d and padding %d: %w", len(b), n, pad,
			ErrPacket)
	}
	r.Op = Op(o.Uint32(b[4:]))
	for i := range r.Args {
		r.Args[i] = o.Uint64(b[8+8*i:])
	}
	r.Text = string(b[requestHeader:])
	return r, nil
}

// Encode returns the response's packet; it wraps ErrPacket when text or values are too many.
func (r Response) Encode() ([]byte, error) {
	if len(r.Text) > MaxText || len(r.Vals) > MaxVals {
		return nil, fmt.Errorf("encode response: %d values and text of %d bytes: %w", len(r.Vals), len(r.Text),
			ErrPacket)
	}
	size := responseHeader + 8*len(r.Vals)
	b := make([]byte, size, size+len(r.Text))
	o := order()
	o.PutUint32(b[0:], uint32(r.Status))    // #nosec G115 -- the same 32 bits
	o.PutUint32(b[4:], uint32(len(r.Vals))) // #nosec G115 -- at most MaxVals
	o.PutUint32(b[8:], uint32(len(r.Text))) // #nosec G115 -- at most MaxText
	for i, v := range r.Vals {
		o.PutUint64(b[responseHeader+8*i:], v)
	}
	return append(b, r.Text...), nil
}

// DecodeResponse reads a response packet; it wraps ErrPacket.
func DecodeResponse(b []byte) (Response, error) {
	var r Response
	if len(b) < responseHeader {
		return r, fmt.Errorf("decode response: %d bytes: %w", len(b), ErrPacket)
	}
	o := order()
	nvals, ntext, pad := o.Uint32(b[4:]), o.Uint32(b[8:]), o.Uint32(b[12:])
	if nvals > MaxVals || ntext > MaxText || pad != 0 || responseHeader+8*int(nvals)+int(ntext) != len(b) {
		return r, fmt.Errorf("decode response: %d bytes with %d values, text length %d and padding %d: %w",
			len(b), nvals, ntext, pad, ErrPacket)
	}
	r.Status = Status(o.Uint32(b)) // #nosec G115 -- the same 32 bits
	if nvals > 0 {
		r.Vals = make([]uint64, nvals)
	}
	for i := range r.Vals {
		r.Vals[i] = o.Uint64(b[responseHeader+8*i:])
	}
	r.Text = string(b[responseHeader+8*nvals:])
	return r, nil
}
