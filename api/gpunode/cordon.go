// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

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

// Fingerprint is the same for the same claims of pods, whatever their order, and whether their containers run or not:
// who, and what of which GPU. It is empty where there are none.
func Fingerprint(claims []Claim) string {
	var lines []string
	for _, c := range claims {
		if c.PodUID == "" {
			continue
		}
		for _, f := range c.Fragments {
			lines = append(lines, fmt.Sprintf("%q %q %q %d %d %t\n", c.PodUID, c.Container, f.GPU, f.MemoryBytes, f.Percent, f.Whole))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:16])
}
