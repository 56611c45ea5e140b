// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// ClusterSlices draws how the GPUs of a cluster are cut into MIG instances, those that can be.
func ClusterSlices(c Cluster, o Options) string {
	var b strings.Builder
	for _, n := range c.Nodes {
		for _, g := range n.GPUs {
			m := fromReport(g)
			if m == nil {
				continue
			}
			fmt.Fprintf(&b, "%s  %s\n", GPUName(n.Name, g), or(g.Model))
			for _, l := range m.lines(o.Wide) {
				b.WriteString(l + "\n")
			}
		}
	}
	if b.Len() == 0 {
		return "No GPU of this cluster can be cut into MIG instances.\n"
	}
	return b.String()
}

// fromReport is nil for a GPU that cannot be cut, or of which nothing is known.
func fromReport(g gpunode.GPU) *MIG {
	if g.MIGState == nil {
		return nil
	}
	s := g.MIGState
	m := &MIG{On: g.MIG, Fixed: s.Fixed, Units: int32(s.Units), Profiles: list(s.Profiles), Trouble: s.Trouble, Waits: s.Waits, TurnsTo: g.TurnsTo, Pieces: []MIGPiece{}} //nolint:gosec // at most 8
	for _, p := range s.Instances {
		m.Pieces = append(m.Pieces, MIGPiece{
			Profile: p.Profile, Start: int32(p.Start), Size: int32(p.Size), Ours: !p.Foreign, Ready: p.Ready, Grant: p.Claim, Holder: p.For, //nolint:gosec // at most 8
		})
	}
	return m
}
