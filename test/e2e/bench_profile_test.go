// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

var benchProfiles = flag.String("bench-profiles", "", "a folder for the CPU profile, the heap profile and the "+
	"metrics of each scheduler that is measured; empty: none. Taking them slows a scheduler down")

// profileTime is how long a CPU profile is: the time in which most pods are bound.
const profileTime = 15 * time.Second

// served is what a scheduler of the bench serves on a port of this machine.
type served struct {
	testing.TB
	port   int
	client *http.Client
}

// serving is a free port, and the arguments with which a scheduler serves its profile and its metrics there, without
// authentication.
func serving(t testing.TB) (*served, []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, _ := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	s := &served{TB: t, port: address.Port,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	return s, []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(address.Port), "--cert-dir=" + t.TempDir(),
		"--authorization-always-allow-paths=/healthz,/metrics,/debug/pprof/*",
	}
}

// keep writes what a path answers into a file of the folder.
func (s *served) keep(path, file string) error {
	var text []byte
	err := poll("answer of "+path, func() error {
		answer, err := s.client.Get(fmt.Sprintf("https://127.0.0.1:%d%s", s.port, path))
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if text, err = io.ReadAll(answer.Body); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return final("%s: %s: %.200s", path, answer.Status, text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*benchProfiles, file), text, 0o600)
}

// profile takes a CPU profile while the scheduler works; what it returns waits for its end, and takes the metrics.
func (s *served) profile(name string) (end func()) {
	done := make(chan error, 1)
	go func() {
		done <- s.keep(fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(profileTime.Seconds())), name+".pprof")
	}()
	return func() {
		s.Helper()
		if err := <-done; err != nil {
			s.Error(err)
		}
		for path, file := range map[string]string{"/metrics": name + ".metrics", "/debug/pprof/heap": name +
			"-heap.pprof"} {
			if err := s.keep(path, file); err != nil {
				s.Error(err)
			}
		}
	}
}
