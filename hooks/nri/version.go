// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"sync/atomic"
)

// runtimeContainerd is how containerd names itself.
const runtimeContainerd = "containerd"

// blind says, with the remedy, that a runtime with that version of NRI does not tell which containers are guarded; it is empty where
// it does, and for a version that cannot be read: without a guard seen, no guarded container starts anyway. The Container
// message has CDI devices since NRI 0.10. containerd tells of their hooks before that; other runtimes were not tried with them.
func blind(runtime, nri string) string {
	var major, minor int
	n, err := fmt.Sscanf(nri, "v%d.%d", &major, &minor)
	if runtime == runtimeContainerd || n != 2 || err != nil || major > 0 || minor >= 10 {
		return ""
	}
	return fmt.Sprintf("the NRI %s of %s does not tell plugins of CDI devices: update to CRI-O 1.34 or newer", nri, runtime)
}

// said is a sentence that several goroutines use.
type said struct{ value atomic.Value }

// Store keeps the sentence.
func (s *said) Store(sentence string) { s.value.Store(sentence) }

// Load is the sentence, empty before the first.
func (s *said) Load() string {
	sentence, _ := s.value.Load().(string)
	return sentence
}
