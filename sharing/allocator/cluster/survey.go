// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/kerf-gpu/kerf/mig"

// SurveyPart is of how many GPUs in MIG mode one may change without a new survey: the prices of many hardly change with one,
// and each survey makes every score void.
const SurveyPart = 128

// survey shows the nodes to a policy that looks at all of them, where that may change its scores.
func (c *Cluster) survey() {
	if c.cuttable == 0 || !c.unsure && c.recut <= c.cuttable/SurveyPart {
		return
	}
	c.recut, c.unsure = 0, false
	if s, ok := c.policy.(Surveyor); ok && s.Survey(c.nodes) {
		c.forget()
	}
}

// roomsOf is how many GPUs of each table have which units free, of those that take new requests.
func roomsOf(nodes []*Node) map[*mig.Table]mig.Room {
	rooms := map[*mig.Table]mig.Room{}
	for _, n := range nodes {
		if n.Table == nil || n.Cordoned {
			continue
		}
		room := rooms[n.Table]
		if room == nil {
			room = mig.Room{}
			rooms[n.Table] = room
		}
		for g, o := range n.instances {
			if g >= len(n.aside) || n.aside[g] == inUse {
				room[n.Table.Free(o)]++
			}
		}
	}
	return rooms
}
