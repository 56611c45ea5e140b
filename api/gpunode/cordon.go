// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

// unexplained is the reason of a cordon that has none.
const unexplained = "no reason was given"

// Why says why it is cordoned, for people; never empty.
func (c Cordon) Why() string {
	why := c.Reason
	if why == "" {
		why = unexplained
	}
	if c.By != "" {
		why += " (" + c.By + ")"
	}
	return why
}

// Cordon marks the GPUs that the spec says are cordoned, for a reader that need not wait until the agent has heard of it.
// GPUs that the agent says are cordoned stay so.
func (s *Status) Cordon(spec Spec) {
	for i := range s.GPUs {
		if c, ok := spec.Cordoned[s.GPUs[i].UUID]; ok {
			s.GPUs[i].Cordoned = c.Why()
		}
	}
}
