// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
)

// Refusal is why one node cannot answer a request.
type Refusal struct {
	Node   string
	Reason Reason
	// Text is the reason with its numbers: "best GPU has 31 % free, 40 % requested".
	Text string
}

// Refusals has one for each node that cannot answer the request, in the order of the nodes.
func (c *Cluster) Refusals(r Request) []Refusal {
	var out []Refusal
	for _, n := range c.nodes {
		if why := Evaluate(n, r); why != Fits {
			out = append(out, Refusal{n.Name, why, because(n, r, why)})
		}
	}
	return out
}

func because(n *Node, r Request, why Reason) string {
	switch why {
	case LacksCPU:
		return fmt.Sprintf("%s cores free, %s requested", cores(n.CPU), cores(r.CPU))
	case LacksMemory:
		return fmt.Sprintf("%v of memory free, %v requested", n.Memory, r.Memory)
	case WrongModel:
		return fmt.Sprintf("GPUs are %s, %s requested", or(n.Model, "none"), r.Models)
	case LacksProfile:
		if n.Table == nil {
			return fmt.Sprintf("GPUs are not in MIG mode, %s requested", r.Profile)
		}
		return fmt.Sprintf("GPUs have no MIG profile %s: write one of %s", r.Profile, n.Table.Names())
	case OtherMode:
		return fmt.Sprintf("GPUs are given %s, %s requested", n.AllowedModes,
			map[bool]string{true: "a part", false: "whole ones"}[n.AllowedModes == WholeAlone])
	case LacksLevel:
		return fmt.Sprintf("level is %v, %v requested", n.level(), r.Level)
	case LacksGPUs:
		return fmt.Sprintf("%d GPUs, %d requested", len(n.GPUs), r.GPUs)
	case LacksCapacity:
		share := n.share(r.Shape)
		if p, ok := n.instanceOf(r.Shape); ok {
			return n.Table.UnfitReason(n.instances[freest(n.GPUs)], p.ID)
		}
		if share == tooMuch && n.GPUMemory > 0 {
			return fmt.Sprintf("GPUs have %v of memory, %v requested", n.GPUMemory, r.GPUMemory)
		}
		if share == tooMuch {
			return "memory of the GPUs is not known"
		}
		if r.GPUs > 1 {
			return fmt.Sprintf("%d GPUs have %s free, %d requested", n.count(n.GPUs, n.resolve(r.Shape)),
				percent(share),
				r.GPUs)
		}
		return fmt.Sprintf("best GPU has %s free, %s requested", percent(slices.Max(n.GPUs)), percent(share))
	case Fits, IsCordoned, Withheld:
	}
	return why.String()
}

// instanceOf is instance, on nodes without MIG too.
func (n *Node) instanceOf(s Shape) (mig.Profile, bool) {
	if n.Table == nil || s.GPUs != 1 {
		return mig.Profile{}, false
	}
	return n.instance(s)
}

// freest is the GPU with the most left.
func freest(free []Milli) int {
	at := 0
	for g, left := range free {
		if left > free[at] {
			at = g
		}
	}
	return at
}

func percent(m Milli) string {
	if m%10 == 0 {
		return fmt.Sprintf("%d %%", m/10)
	}
	return fmt.Sprintf("%d.%d %%", m/10, m%10)
}

func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}

func cores(m Milli) string {
	if m%1000 == 0 {
		return fmt.Sprint(m / 1000)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", m/1000, m%1000), "0")
}
