// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
)

// The reasons of events about MIG.
const (
	// reasonPending of the node: a GPU does not have the MIG layout of its pool yet, with the reason.
	reasonPending = "MIGLayoutPending"
	// reasonFailed of the node: a GPU has no MIG instances because of an error.
	reasonFailed = "MIGFailed"
)

// migNews says in the node's events what stands in the way on its GPUs, once for each sentence.
type migNews struct {
	mu   sync.Mutex
	tell func(reason, message string)
	said map[sharing.GPUID]string
}

// to sets the receiver. Before it is set, messages are kept.
func (m *migNews) to(tell func(reason, message string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell = tell
}

// say reports why a GPU gives no instances, or why it differs from its pool's layout. Both are empty if all is well.
func (m *migNews) say(gpu sharing.GPUID, trouble, waits string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reason, text := reasonFailed, trouble
	if text == "" {
		reason, text = reasonPending, waits
	}
	if m.tell == nil || m.said[gpu] == text {
		return
	}
	if m.said == nil {
		m.said = map[sharing.GPUID]string{}
	}
	m.said[gpu] = text
	switch {
	case text == "":
	case reason == reasonFailed:
		m.tell(reason, fmt.Sprintf("GPU %s has no MIG instances because of an error: %s", gpu, text))
	default:
		m.tell(reason, fmt.Sprintf("The MIG layout of GPU %s is pending: %s", gpu, text))
	}
}
