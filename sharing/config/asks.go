// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Asks are the amounts that a container asks for which takes what the profile gives: what is written into a pod that names it
// and asks for nothing. There are none where the memory is no whole number of GiB, which no pod can ask for.
func (p Profile) Asks() []sharing.Ask {
	count := func(resource string, n int) sharing.Ask {
		return sharing.Ask{Resource: strings.TrimPrefix(resource, sharing.Domain+"/"), Count: n}
	}
	r := p.request()
	if r.Kind == sharing.KindWhole {
		return []sharing.Ask{count(sharing.ResourceGPU, r.GPUs)}
	}
	if r.Memory%sharing.GiB != 0 {
		return nil
	}
	var asks []sharing.Ask
	if r.Memory != 0 {
		asks = append(asks, count(sharing.ResourceMemory, int(r.Memory/sharing.GiB))) //nolint:gosec // a valid size is far below
	}
	if r.Percent != 0 {
		asks = append(asks, count(sharing.ResourcePercent, int(r.Percent)))
	}
	return asks
}
