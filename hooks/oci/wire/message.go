// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"io"
	"strings"
)

// Request asks the agent to arm one container.
type Request struct {
	// Container is the id in the OCI state.
	Container string `json:"container"`
	// PID is the container's first process in the host's pid namespace.
	PID int `json:"pid"`
	// Ask is the amount in the hook's arguments; empty for the guard itself.
	Ask string `json:"ask,omitempty"`
	// Grant is the claim in the hook's arguments; empty for pods.
	Grant string `json:"grant,omitempty"`
	// Version is the hook's own version, for logs alone.
	Version string `json:"version,omitempty"`
}

// Response is the agent's answer. Only one that says OK lets the container's program run.
type Response struct {
	// OK is true when the cap is in force and was read back.
	OK bool `json:"ok"`
	// Retry is true when the same request may be answered differently a little later.
	Retry bool `json:"retry,omitempty"`
	// Message is the reason why not, for people.
	Message string `json:"message,omitempty"`
	// Version is the agent's own version, for people alone.
	Version string `json:"version,omitempty"`
}

// maxMessage is the longest reason that is sent; a longer one is cut. Every byte may become six in JSON, and
// the frame must hold it all the same.
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
