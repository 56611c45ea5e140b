// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// answer is the CDI names of a container that gets these ids: the guard, the amount, and for whole GPUs how
// many should be of which NUMA node. It is a pure function of the list's resource, the number of ids and
// their NUMA nodes; unhealthy ids are answered as well, because kubelet is the one who decides on health.
// The error is a *sharing.FieldError that names the id.
func (l *list) answer(ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, sharing.Invalid(l.resource, "", "", "was asked for without an id")
	}
	if len(ids) > len(l.devices) {
		return nil, sharing.Invalid(l.resource, fmt.Sprint(len(ids)), "", "is more ids than the %d there are", len(l.devices))
	}
	taken := make([]bool, len(l.devices))
	var near [sharing.MaxNUMA]int
	for _, s := range ids {
		i, ok := l.at[s]
		if !ok {
			return nil, sharing.Invalid(l.resource, s, "", "is no id of this node")
		}
		if taken[i] {
			return nil, sharing.Invalid(l.resource, s, "", "was named twice")
		}
		taken[i] = true
		if n := l.devices[i].numa; n != NoNUMA {
			near[n]++
		}
	}
	names := []string{
		sharing.GuardDevice,
		sharing.Ask{Resource: strings.TrimPrefix(l.resource, sharing.Domain+"/"), Count: len(ids)}.Device(),
	}
	for numa, count := range near {
		if count > 0 {
			names = append(names, sharing.Near{NUMA: numa, Count: count}.Device())
		}
	}
	return names, nil
}
