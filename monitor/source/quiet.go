// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/quiet"
	"github.com/kerf-gpu/kerf/sharing"
)

// askedEvery is how often it is looked whether the agent asks for a GPU, while something is held on GPUs. The agent waits
// some seconds.
const askedEvery = 200 * time.Millisecond

// errAsked ends what holds GPUs because the agent wants one for itself.
var errAsked = errors.New("kerf-agent asks for a GPU")

// holds are the GPUs that something reads for as long as it runs.
type holds struct {
	dir  *quiet.Reader
	done map[sharing.GPUID]func()
}

func newHolds(dir *quiet.Reader) *holds { return &holds{dir, map[sharing.GPUID]func(){}} }

// on takes part for these GPUs, those that it has already among them. The error wraps errAsked when one is asked for.
func (h *holds) on(gpus []sharing.GPUID) error {
	for _, gpu := range gpus {
		done, err := h.dir.Read(gpu)
		if err != nil {
			return fmt.Errorf("%w: %w", errAsked, err)
		}
		if h.done[gpu] != nil {
			done() // this was only to see
			continue
		}
		h.done[gpu] = done
	}
	return nil
}

// release ends it.
func (h *holds) release() {
	for _, gpu := range slices.Collect(maps.Keys(h.done)) {
		h.done[gpu]()
		delete(h.done, gpu)
	}
}
