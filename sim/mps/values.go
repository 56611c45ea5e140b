// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// limit is what was set for a device: an ordinal or a UUID, which is not checked.
type limit struct {
	device, text string
	bytes        sharing.Bytes
}

// limits are in the order in which they were set; of two for one GPU the later counts.
type limits []limit

// set returns the limits with one more.
func (l limits) set(device, value string) (limits, error) {
	n, err := size(value)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(l), func(e limit) bool { return e.device == device })
	return append(kept, limit{device: device, text: value, bytes: n}), nil
}

// get returns the text that a device's limit was set with.
func (l limits) get(device string) string {
	for _, e := range l {
		if e.device == device {
			return e.text
		}
	}
	return "0M"
}

// of returns the limit of the GPU that stands at place i of a server's, 0: none.
func (l limits) of(i int, uuid string) sharing.Bytes {
	var n sharing.Bytes
	for _, e := range l {
		if e.device == uuid || e.device == strconv.Itoa(i) {
			n = e.bytes
		}
	}
	return n
}

// size reads an integer with G or M behind it.
func size(text string) (sharing.Bytes, error) {
	unit := sharing.MiB
	number, found := strings.CutSuffix(text, "M")
	if !found {
		unit = sharing.GiB
		number, found = strings.CutSuffix(text, "G")
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil || n == 0 {
		return 0, fmt.Errorf("invalid memory limit %q: %w", text, sharing.ErrInvalid)
	}
	return sharing.Bytes(n) * unit, nil // 32 and 30 bits
}

// percentage reads a share of the threads.
func percentage(text string) (float64, error) {
	p, err := strconv.ParseFloat(text, 64)
	if err != nil || !(p > 0 && p <= 100) {
		return 0, fmt.Errorf("invalid active thread percentage %q: %w", text, sharing.ErrInvalid)
	}
	return p, nil
}

func showPercentage(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) }

// visible applies CUDA_VISIBLE_DEVICES to GPUs in PCI order: the list ends at the first entry that names none.
func visible(all []device, list string, set bool) []device {
	if !set {
		return all
	}
	var chosen []device
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		i := slices.IndexFunc(all, func(d device) bool {
			return strings.HasPrefix(entry, "GPU-") && strings.HasPrefix(d.uuid, entry)
		})
		if n, err := strconv.Atoi(entry); err == nil && n >= 0 && n < len(all) {
			i = n
		}
		if i < 0 || slices.ContainsFunc(chosen, func(d device) bool { return d.uuid == all[i].uuid }) {
			break
		}
		chosen = append(chosen, all[i])
	}
	return chosen
}
