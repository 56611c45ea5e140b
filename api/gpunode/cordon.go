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

// unexplained is the reason of a cordon without one.
const unexplained = "no reason was given"

// Text is the reason and who cordoned the GPU, for people; never empty.
func (c Cordon) Text() string {
	text := c.Reason
	if text == "" {
		text = unexplained
	}
	if c.By != "" {
		text += " (" + c.By + ")"
	}
	return text
}

// Cordon marks the GPUs that the spec cordons, for a client that does not wait for the agent. GPUs that the agent
// reports as cordoned stay so.
func (s *Status) Cordon(spec Spec) {
	for i := range s.GPUs {
		for _, c := range spec.CordonedGPUs {
			if c.UUID == s.GPUs[i].UUID {
				s.GPUs[i].Cordoned = c.Text()
			}
		}
	}
}

// With is the spec with the cordon in place of an earlier one of the same GPU.
func (s Spec) With(c Cordon) Spec {
	out := s.Without(c.UUID)
	out.CordonedGPUs = append(out.CordonedGPUs, c)
	slices.SortFunc(out.CordonedGPUs, func(a, b Cordon) int { return strings.Compare(a.UUID, b.UUID) })
	return out
}

// Without is the spec without a cordon of the GPU.
func (s Spec) Without(uuid string) Spec {
	return Spec{CordonedGPUs: slices.DeleteFunc(slices.Clone(s.CordonedGPUs),
		func(c Cordon) bool { return c.UUID == uuid })}
}

// Fingerprint is the same for the same grants of pods, whatever their order and state. It is empty if there are none.
func Fingerprint(grants []Grant) string {
	var lines []string
	for _, g := range grants {
		if g.PodUID == "" {
			continue
		}
		for _, f := range g.Shares {
			lines = append(lines, fmt.Sprintf("%q %q %q %d %d %t\n", g.PodUID, g.Container, f.GPU, f.MemoryBytes,
				f.Percent, f.Whole))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:16])
}
