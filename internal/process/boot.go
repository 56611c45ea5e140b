// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// BootID is the kernel's random id of this boot, a UUID in lower case. What was written down under another
// boot id (pids, start times, cgroup inodes) is stale. It is sharing.ErrUnavailable when /proc does not
// tell.
func BootID() (string, error) {
	data, err := os.ReadFile(bootIDPath)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w (%w)", err, sharing.ErrUnavailable)
	}
	return parseBootID(string(data))
}

func parseBootID(s string) (string, error) {
	id := strings.TrimSuffix(s, "\n")
	ok := len(id) == 36
	for i := 0; ok && i < len(id); i++ {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			ok = id[i] == '-'
		} else {
			ok = strings.IndexByte("0123456789abcdef", id[i]) >= 0
		}
	}
	if !ok {
		return "", fmt.Errorf("read boot id: %q is not a UUID: %w", s, sharing.ErrUnavailable)
	}
	return id, nil
}
