// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"io"
	"sync"
)

// closingReader calls a function once when its source has ended, whichever comes later.
type closingReader struct {
	from io.Reader

	mu    sync.Mutex
	ended bool
	tell  func()
}

// orNil is the reader, or nil without a source: a typed nil would count as a source.
func (r *closingReader) orNil() io.Reader {
	if r.from == nil {
		return nil
	}
	return r
}

// Read reads the source, noting its end.
func (r *closingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil {
		r.mu.Lock()
		r.ended = true
		tell := r.tell
		r.tell = nil
		r.mu.Unlock()
		if tell != nil {
			tell()
		}
	}
	return n, err
}

// onEnd sets the function, and calls it at once when the end is past.
func (r *closingReader) onEnd(tell func()) {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.tell = tell
	}
	r.mu.Unlock()
	if ended {
		tell()
	}
}
