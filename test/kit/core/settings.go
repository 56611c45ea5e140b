// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Settings are what can be set on the GPUs of a machine: "UUID setting" to the value.
type Settings map[string]string

// SMI begins the names of settings that nvidia-smi reports. It may fail for other reasons than NVML.
const SMI = "nvidia-smi: "

// withoutSMI drops what nvidia-smi reported, unless it reported both times.
func withoutSMI(before, after Settings) (Settings, Settings) {
	told := func(key, _ string) bool { return strings.HasPrefix(key, SMI) }
	was, is := maps.Clone(before), maps.Clone(after)
	maps.DeleteFunc(was, told)
	maps.DeleteFunc(is, told)
	if len(was) == len(before) || len(is) == len(after) {
		return was, is
	}
	return before, after
}

// Compare returns one sentence for each difference, sorted. A setting that could be read only once is a
// difference.
func Compare(before, after Settings) []string {
	before, after = withoutSMI(before, after)
	var out []string
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		was, before := before[k]
		is, after := after[k]
		switch {
		case !after:
			out = append(out, fmt.Sprintf("%s was %s before and cannot be read any more", k, was))
		case !before:
			out = append(out, fmt.Sprintf("%s is %s and could not be read before", k, is))
		case was != is:
			out = append(out, fmt.Sprintf("%s was %s before and is %s now", k, was, is))
		}
	}
	return out
}
