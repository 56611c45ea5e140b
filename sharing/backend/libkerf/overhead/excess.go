// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"math"

	"github.com/kerf-gpu/kerf/sharing"
)

// Used is what a grant uses of each GPU that the driver has reported. It adds the driver's list and the managed memory
// that processes count, which the driver lists with no process. A GPU with an entry of unknown size is missing.
func (l Sample) Used() map[sharing.GPURef]sharing.Bytes {
	out := map[sharing.GPURef]sharing.Bytes{}
	for _, gpu := range l.Listed {
		out[gpu] = l.Ended[gpu]
		for _, c := range l.After {
			out[gpu] = saturated(out[gpu], c.Managed[gpu])
		}
	}
	for _, u := range l.Uses {
		if sum, listed := out[u.GPU]; listed && u.Known {
			out[u.GPU] = saturated(sum, u.Bytes)
		}
	}
	for _, u := range l.Uses {
		if !u.Known {
			delete(out, u.GPU)
		}
	}
	return out
}

// Exceeds reports whether what an attachment holds is more than its cap by more than the size of one context. Then
// something else than a context that was not counted yet is above the cap, so that the cap is not enforced.
func Exceeds(held, limit, context sharing.Bytes) bool { return held > limit && held-limit > context }

func saturated(a, b sharing.Bytes) sharing.Bytes {
	sum, err := a.Add(b)
	if err != nil {
		return math.MaxUint64
	}
	return sum
}
