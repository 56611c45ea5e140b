// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

// Verified is what Verify found.
type Verified struct {
	// First is the number of the first entry, and Entries how many were read.
	First   uint64
	Entries int
	Tail    audit.Tail
	// Torn is true if the last line has no end: it is being written, or a crash truncated it.
	Torn bool
}

// maxErrors is the maximum number of reported errors.
const maxErrors = 20

// Verify reads files in the order of their entries, and checks that each entry has the hash of the one before it. It
// calls each, which may be nil, for every readable entry. The error joins all errors, with file and line, and wraps
// sharing.ErrInvalid. If a file cannot be read, it wraps sharing.ErrUnavailable.
func Verify(paths []string, each func(audit.Entry)) (Verified, error) {
	var v audit.Verifier
	var out Verified
	var bad []error
	for i, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return out, fmt.Errorf("read audit log: %w (%w)", err, sharing.ErrUnavailable)
		}
		torn, wrong, err := lines(f, func(line []byte) error {
			e, err := v.Next(line)
			if e.Seq != 0 {
				out.Entries++
				if each != nil {
					each(e)
				}
			}
			return err
		})
		err = errors.Join(err, f.Close())
		if err != nil {
			return out, fmt.Errorf("read audit log %q: %w (%w)", path, err, sharing.ErrUnavailable)
		}
		for _, w := range wrong {
			bad = append(bad, fmt.Errorf("%s: %w", path, w))
		}
		if out.Torn = torn; torn && i < len(paths)-1 {
			bad = append(bad, fmt.Errorf("%s: its last line has no end: %w", path, sharing.ErrInvalid))
		}
	}
	out.First, out.Tail = v.First(), v.Tail()
	if len(bad) > maxErrors {
		bad = append(bad[:maxErrors], fmt.Errorf("and %d more: %w", len(bad)-maxErrors, sharing.ErrInvalid))
	}
	return out, errors.Join(bad...)
}

// lines calls do for each whole line; wrong has what do found, by number. A line that is too long is one error.
func lines(r io.Reader, do func(line []byte) error) (torn bool, wrong []error, err error) {
	in := bufio.NewReaderSize(r, audit.MaxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			return len(line) > 0 || long, wrong, nil
		case err != nil:
			return false, wrong, err
		case long:
			wrong = append(wrong, fmt.Errorf("line %d is longer than %d bytes: %w", n, audit.MaxLine,
				sharing.ErrInvalid))
			continue
		}
		if err := do(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %w", n, err))
		}
	}
}
