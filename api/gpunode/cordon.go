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

// unexplained is the reason of a cordon or a drain without one.
const unexplained = "no reason was given"

// Text is the reason and who cordoned the GPU, for people; never empty.
func (c Cordon) Text() string { return explained(c.Reason, c.By) }

// Text is the reason and who drains the driver, for people; never empty.
func (d DriverDrain) Text() string { return explained(d.Reason, d.By) }

func explained(reason, by string) string {
	if reason == "" {
		reason = unexplained
	}
	if by != "" {
		reason += " (" + by + ")"
	}
	return reason
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
	s.CordonedGPUs = slices.DeleteFunc(slices.Clone(s.CordonedGPUs), func(c Cordon) bool { return c.UUID == uuid })
	return s
}

// Draining is the spec with a drain of the driver, or without one for nil.
func (s Spec) Draining(d *DriverDrain) Spec {
	s.DriverDrain = d
	return s
}

// Resized is the spec with the entry in place of an earlier one of the same container. Entries of pods that are not in
// the status are left out.
func (s Spec) Resized(m GrantMemory, status Status) Spec {
	out := slices.DeleteFunc(slices.Clone(s.GrantMemory), func(o GrantMemory) bool {
		same := func(g Grant) bool { return g.PodUID == o.PodUID && g.Container == o.Container }
		return o.PodUID == m.PodUID && o.Container == m.Container || !slices.ContainsFunc(status.Grants, same)
	})
	out = append(out, m)
	s.GrantMemory = out
	return s
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
