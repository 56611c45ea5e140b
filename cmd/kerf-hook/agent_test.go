// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

const creating = `{"id":"c1","status":"creating","pid":4711}`

// agent starts a fake agent that answers the i-th connection with the i-th answer, and goes on with the last. It
// returns its socket, in a folder with a short name.
func agent(t *testing.T, answers ...wire.Response) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-hook")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := wire.ReadRequest(c); err == nil {
				_ = wire.WriteResponse(c, answers[min(i, len(answers)-1)])
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}
