// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Found is what was found of one process that stands still.
type Found struct {
	PID int
	// Files are the device files that it has open.
	Files []string
	// GPUs are the indexes of the GPUs whose list of processes has it.
	GPUs []int
	// Outside are processes outside of the group that share its memory or its table of descriptors.
	Outside []int
}

// Evaluate returns nil if none of the processes can have GPU memory that no cap counts. Else the error wraps
// sharing.ErrConflict and says of each process what it found and what to do.
func Evaluate(all []Found) error {
	var errs []error
	for _, f := range all {
		if len(f.GPUs) > 0 {
			errs = append(errs, f.reject("uses GPU %s already; activate the grant before the first use of a GPU",
				numbers(f.GPUs)))
		} else if len(f.Files) > 0 {
			errs = append(errs, f.reject("has %s open; close it first, or start from a program that never opened it",
				brief(f.Files)))
		}
		if len(f.Outside) > 0 {
			errs = append(errs, f.reject("shares its memory or its open files with process %s, which the grant would "+
				"not hold; use threads, or end that process first", numbers(f.Outside)))
		}
	}
	return errors.Join(errs...)
}

func (f Found) reject(format string, args ...any) error {
	return fmt.Errorf("process %d %s: %w", f.PID, fmt.Sprintf(format, args...), sharing.ErrConflict)
}

// brief names a few of many files.
func brief(files []string) string {
	const most = 2
	if len(files) <= most {
		return strings.Join(files, " and ")
	}
	return fmt.Sprintf("%s and %d more device files", strings.Join(files[:most], ", "), len(files)-most)
}

func numbers(all []int) string {
	out := make([]string, len(all))
	for i, n := range all {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, ", ")
}
