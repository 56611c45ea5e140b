// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Users are the users of a node's GPUs.
type Users struct {
	// Of names the pods and processes that have a part of each GPU.
	Of map[sharing.GPUID][]string
	// Known is false while there may be others.
	Known bool
}

// Desired is what the GPUs of a node should have, and what waits for whom. has is what each GPU has, as far as that is known. An idle
// GPU gets what its pool says. A GPU in use keeps what it has. While there may be unknown users, each GPU keeps its backends.
func Desired(pool config.Pool, gpus []sharing.GPU, has map[sharing.GPUID]config.GPUSettings, users Users) Plan {
	uses := make([]Use, 0, len(gpus))
	for _, g := range gpus {
		u := Use{GPU: g, Users: users.Of[g.UUID]}
		if s, known := has[g.UUID]; known {
			u.Now = &s
		}
		uses = append(uses, u)
	}
	p := Settle(pool, uses)
	for id, s := range has {
		next, there := p.Next[id]
		switch {
		case there && !users.Known:
			next.Backends, next.MinLevel = s.Backends, s.MinLevel
			p.Next[id] = next
		case !there && (len(users.Of[id]) > 0 || !users.Known):
			p.Next[id] = s // the GPU may come back
		}
	}
	return p
}
