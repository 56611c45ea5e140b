// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import "errors"

// Stuck says why this program should be started again; empty if it need not be. A container sees only the driver that
// was there when it was created, and a process keeps the library that it has loaded.
func (s *NVML) Stuck() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck
}

// lost notes why the driver in use ended.
func (s *NVML) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck = ""; len(s.gpus) > 0 && !errors.Is(err, errAsked) {
		s.stuck = "the NVIDIA driver that was there does not answer: " + err.Error()
	}
}
