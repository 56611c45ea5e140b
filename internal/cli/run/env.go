// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"
	"strings"
)

// withEnv is base with the variables of more, which win, at the end in their order by name.
func withEnv(base []string, more map[string]string) []string {
	out := make([]string, 0, len(base)+len(more))
	for _, e := range base {
		name, _, _ := strings.Cut(e, "=")
		if _, ours := more[name]; !ours {
			out = append(out, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		out = append(out, name+"="+more[name])
	}
	return out
}
