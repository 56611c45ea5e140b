// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package client is what kerf-hook does. The function Activate reads the OCI state of a container, passes the
// container's id and pid on to the agent, and acts on the answer. While there is no agent, or the agent is not ready,
// it tries again until Options.Wait is over. A failed start is final for some containers.
//
// Promised: it uses only id, status, pid and the annotation kerf.dev/grant of the state. It trusts only an agent of the
// same user. It opens only the socket, starts no process, and needs only the standard library and package wire.
//
// Not promised: that what the agent has done is undone when the hook is killed or a later hook fails. The agent sees a
// container without processes and cleans up by itself.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

// maxLine is the longest line on stderr in bytes; container runtimes and events truncate longer ones.
const maxLine = 2 << 10

// OneLine makes s safe to print. It escapes control characters, line ends and invalid UTF-8, so that no part of an
// error starts a new line.
func OneLine(s string) string {
	var b strings.Builder
	for len(s) > 0 && b.Len() < maxLine {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			b.WriteString(strings.Trim(strconv.QuoteToASCII(s[:n]), `"`))
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	if s != "" {
		b.WriteString("...")
	}
	return b.String()
}

// shorten truncates outside text before it is quoted into an error.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// MaxTokenBytes is the longest Amount and Grant in bytes. The agent checks what they say.
const MaxTokenBytes = 128

// IsToken reports whether s can be an Amount or a Grant: 1 to MaxTokenBytes of a-z A-Z 0-9 . : _ -.
func IsToken(s string) bool {
	if s == "" || len(s) > MaxTokenBytes {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '.' && c != ':' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

const (
	// maxState bounds the OCI state. Annotations make it large; no pod has more than a quarter of this.
	maxState = 1 << 20
	// maxID is the longest container id that runc takes.
	maxID = 1024
	// maxNote bounds the annotation of the grant in bytes as JSON, so that it fits into a frame. That of a grant of 64
	// GPUs has half of this.
	maxNote = wire.MaxBody / 2
	// maxPID is the largest pid that Linux can be set to.
	maxPID = 1 << 22
)

var errState = errors.New("the runtime's OCI state cannot be used")

// state is what the hook reads of the OCI state. It never looks at the rest.
type state struct {
	ID          string `json:"id"`
	Status      string `json:"status"`
	PID         int    `json:"pid"`
	Annotations struct {
		// Grant is sharing.GrantAnnotation. The agent wrote it, if the runtime created the container as the agent said.
		Grant string `json:"kerf.dev/grant"`
	} `json:"annotations"`
}

// note is the annotation of the grant. One that is too long is not the agent's.
func (s state) note() string {
	if text, err := json.Marshal(s.Annotations.Grant); err != nil || len(text) > maxNote {
		return ""
	}
	return s.Annotations.Grant
}

// readState reads the OCI state until the end of r, or until ctx ends.
func readState(ctx context.Context, r io.Reader) (state, error) {
	type result struct {
		data []byte
		err  error
	}
	// A runtime that never closes its end must not hold the hook: the read is left behind when ctx ends, and
	// ends with the process.
	done := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, maxState+1))
		done <- result{data, err}
	}()
	select {
	case got := <-done:
		if got.err != nil {
			return state{}, fmt.Errorf("read stdin: %w: %w", got.err, errState)
		}
		return parseState(got.data)
	case <-ctx.Done():
		return state{}, fmt.Errorf("stdin does not end: %w", errState)
	}
}

// parseState refuses all that is not the state of a container whose program does not run yet. Errors wrap
// errState.
func parseState(data []byte) (state, error) {
	if len(data) > maxState {
		return state{}, fmt.Errorf("longer than %d bytes: %w", maxState, errState)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("%w: %w", err, errState)
	}
	switch {
	case !isID(s.ID):
		return state{}, fmt.Errorf("id %q is not 1 to %d of a-z A-Z 0-9 _ + . -: %w", shorten(s.ID), maxID, errState)
	case s.Status != "creating" && s.Status != "created":
		return state{}, fmt.Errorf("container %q has status %q, not creating or created: %w", s.ID, shorten(s.Status),
			errState)
	case s.PID <= 1 || s.PID > maxPID:
		return state{}, fmt.Errorf("container %q has pid %d: %w", s.ID, s.PID, errState)
	}
	return s, nil
}

// isID holds ids to the characters that OCI runtimes take.
func isID(s string) bool {
	if s == "" || len(s) > maxID || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
