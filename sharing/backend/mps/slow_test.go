// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// serverBy replaces the server's program by a script, in which $SERVER is the real one.
func (s *site) serverBy(script string) {
	s.Helper()
	const name = "nvidia-cuda-mps-server"
	path, real := filepath.Join(s.dir, "bin", name), filepath.Join(s.dir, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(real, name)); err != nil {
		s.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/sh\nSERVER=%s/%s\n%s\n", real, name, script)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { // #nosec G306 -- servers run as any user
		s.Fatal(err)
	}
}

// A server that initializes is waited for: the grant is activated once it takes clients, and not before.
func TestSlowServer(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(s.dir, "gate")
	s.serverBy("until [ -e " + gate + " ]; do sleep 0.01; done\nexec $SERVER")
	k := s.key(0, "slow")
	acquired := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), k, "l", Terms{Memory: sharing.GiB})
		acquired <- err
	}()
	s.initializing(k)
	select {
	case err := <-acquired:
		t.Fatalf("activated while the server initializes: %v", err)
	default:
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-acquired; err != nil {
		t.Fatal(err)
	}
	if st := s.state(); st.Condition != Ready || len(st.Servers) != 1 {
		t.Errorf("state %+v", st)
	}
	s.release(k, "l")
}

// initializing waits until the daemon of a key lists a server that initializes.
func (s *site) initializing(k Key) {
	s.Helper()
	eventually.True(s, "a server that initializes", func() bool {
		places, err := s.Places(k)
		if err != nil {
			return false
		}
		d := mps.Daemon{Program: s.opt.Program, Pipe: places.Pipe, GPU: k.GPU}
		servers, err := d.Servers(s.Context())
		if err != nil || len(servers) != 1 {
			return false
		}
		status, err := d.Status(s.Context(), servers[0])
		return err == nil && status == mps.Initializing
	})
}

// A server that ends while it initializes is an error.
func TestServerThatEndsAtOnce(t *testing.T) {
	s := newSite(t)
	s.opt.StartTime = time.Second
	s.serverBy("exit 1")
	if _, err := s.Acquire(t.Context(), s.key(0, "ends"), "l", Terms{Memory: sharing.GiB}); err == nil {
		t.Error("activated without a server")
	}
	if got := s.left(); got != nothing {
		t.Errorf("left: %s", got)
	}
}
