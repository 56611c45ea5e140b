// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
)

// Plan makes the Shares of a program. Together they leave reserve file descriptors of RLIMIT_NOFILE to the rest of the
// program. The error wraps sharing.ErrExhausted if the limit is too low for that.
func Plan(shares []limit.Share, reserve int) (map[string]*Share, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("read limit on open files: %w (%w)", err, sharing.ErrUnavailable)
	}
	const most = 1 << 20 // far more than all shares; the subtraction does not wrap
	fitted, err := limit.Fit(shares, int(min(files.Cur, most))-reserve)
	if err != nil {
		return nil, fmt.Errorf("%w; raise the limit on open files (ulimit -n, LimitNOFILE=), which is %d and leaves %d for other files", err, files.Cur, reserve)
	}
	out := make(map[string]*Share, len(fitted))
	for _, s := range fitted {
		out[s.Name] = NewShare(s)
	}
	return out, nil
}
