// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol of kerf-hook and the agent: one request and one response over a unix socket, each in
// one frame.
//
// A frame is the four bytes "KRFH", one byte with the version, the body's length as four bytes in big-endian order, and
// the body. The body is a JSON object of at most MaxBody bytes. The nine bytes before it are the same in every version,
// so that a peer can recognize another version.
//
// Hook and agent are installed apart and updated one after the other. Within one frame version each side ignores
// unknown fields and takes the zero value for missing ones. So a zero value must always be the careful one. Any other
// change needs a new frame version. The other side rejects that with a sentence that names both.
//
// Not promised: secrecy or authenticity. The socket's mode and the peer's credentials are the server's and
// the client's to check.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// Version is the version of the frames that this package speaks.
	Version = 1
	// MaxBody is the longest body in bytes.
	MaxBody = 64 << 10

	magic      = "KRFH"
	headerSize = len(magic) + 1 + 4
)

// ErrMalformed says that the bytes are no frame, or its body is no message.
var ErrMalformed = errors.New("malformed message")

// VersionError says that the peer speaks another version of the frames.
type VersionError struct {
	// Peer is the version that its frame names.
	Peer byte
}

// Error names both versions and what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d of the hook's messages and this side version %d; install "+
		"kerf-hook and kerf-agent of versions that lie next to each other", e.Peer, Version)
}

// write sends v as one frame, in one Write.
func write(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > MaxBody {
		return fmt.Errorf("encode message: %d bytes, more than %d: %w", len(body), MaxBody, ErrMalformed)
	}
	frame := make([]byte, 0, headerSize+len(body))
	frame = append(frame, magic...)
	frame = append(frame, Version)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(body))) //nolint:gosec // at most MaxBody
	frame = append(frame, body...)
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// read takes one frame from r and decodes it into v. It reads no byte past the frame.
func read(r io.Reader, v any) error {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return fmt.Errorf("receive message: %w", err)
	}
	if string(header[:len(magic)]) != magic {
		return fmt.Errorf("receive message: begins with %q: %w", header[:len(magic)], ErrMalformed)
	}
	if peer := header[len(magic)]; peer != Version {
		return fmt.Errorf("receive message: %w", &VersionError{Peer: peer})
	}
	size := binary.BigEndian.Uint32(header[len(magic)+1:])
	if size > MaxBody {
		return fmt.Errorf("receive message: announces %d bytes, more than %d: %w", size, MaxBody, ErrMalformed)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("receive message: %w", err)
	}
	// A body of "null" or of an array is JSON too, and would leave v as it is.
	if size == 0 || body[0] != '{' {
		return fmt.Errorf("receive message: the body is no JSON object: %w", ErrMalformed)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("receive message: %w (%w)", err, ErrMalformed)
	}
	return nil
}

// Request asks the agent to activate one container.
type Request struct {
	// Container is the id in the OCI state.
	Container string `json:"container"`
	// PID is the container's first process in the host's pid namespace.
	PID int `json:"pid"`
	// Amount is the amount in the hook's arguments; empty for the guard itself.
	Amount string `json:"ask,omitempty"`
	// Grant is the grant in the hook's arguments; empty for pods.
	Grant string `json:"grant,omitempty"`
	// Note is the annotation in the OCI state that the agent gave to the container; empty without one.
	Note string `json:"note,omitempty"`
	// Version is the hook's own version, for logs alone.
	Version string `json:"version,omitempty"`
}

// Response is the agent's answer. Only one that says OK lets the container's program run.
type Response struct {
	// OK is true if the cap is enforced and was read back.
	OK bool `json:"ok"`
	// Retry is true when the same request may be answered differently a little later.
	Retry bool `json:"retry,omitempty"`
	// Message is the reason why not, for people.
	Message string `json:"message,omitempty"`
	// Version is the agent's own version, for people alone.
	Version string `json:"version,omitempty"`
}

// maxMessage is the longest reason that is sent; a longer one is truncated. Every byte may become six in JSON, and must
// still fit into the frame.
const maxMessage = 8 << 10

// WriteRequest sends q. The error wraps ErrMalformed when q does not fit into a frame.
func WriteRequest(w io.Writer, q Request) error { return write(w, q) }

// ReadRequest receives a request. Errors wrap ErrMalformed or *VersionError, or are those of r.
func ReadRequest(r io.Reader) (Request, error) {
	var q Request
	err := read(r, &q)
	return q, err
}

// WriteResponse sends p.
func WriteResponse(w io.Writer, p Response) error {
	if len(p.Message) > maxMessage {
		p.Message = strings.ToValidUTF8(p.Message[:maxMessage], "") + "..."
	}
	return write(w, p)
}

// ReadResponse receives a response. Errors are as of ReadRequest; an answer that says both OK and Retry is
// malformed.
func ReadResponse(r io.Reader) (Response, error) {
	var p Response
	if err := read(r, &p); err != nil {
		return Response{}, err
	}
	if p.OK && p.Retry {
		return Response{}, fmt.Errorf("receive message: says ok and retry: %w", ErrMalformed)
	}
	return p, nil
}
