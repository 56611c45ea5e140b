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
	// reasonWaits of the node: a GPU does not have the MIG layout of its pool yet, and what it waits for.
	reasonWaits = "MIGWaits"
	// reasonTrouble of the node: a GPU gives no MIG instances, and why.
	reasonTrouble = "MIGTrouble"
)

// migNews says in the node's events what stands in the way on its GPUs, once for each sentence.
type migNews struct {
	mu   sync.Mutex
	tell func(reason, message string)
	said map[sharing.GPUID]string
}

// to sets who is told. Before, nothing is said, and nothing is forgotten.
func (m *migNews) to(tell func(reason, message string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell = tell
}

// say tells of a GPU: why it gives no instances, or why it is not as its pool wants it; both empty where all is well.
func (m *migNews) say(gpu sharing.GPUID, trouble, waits string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reason, text := reasonTrouble, trouble
	if text == "" {
		reason, text = reasonWaits, waits
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
	case reason == reasonTrouble:
		m.tell(reason, fmt.Sprintf("GPU %s gives no MIG instances: %s", gpu, text))
	default:
		m.tell(reason, fmt.Sprintf("MIG on GPU %s is not as the pool says: %s", gpu, text))
	}
}
