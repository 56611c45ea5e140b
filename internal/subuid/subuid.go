// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package subuid says to which user a UID belongs. The system gives users ranges of subordinate UIDs in /etc/subuid
// (see subuid(5)), and a user can run processes as each of them.
//
// It reads that file alone, and no ranges that a name service has.
package subuid

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/sharing"
)

// Path is the system's file.
const Path = "/etc/subuid"

// maxLines bounds what is read of the file.
const maxLines = 1 << 16

// Range is a user's range of subordinate UIDs.
type Range struct {
	Owner, First, Count uint32
}

// Parse reads the lines NAME:FIRST:COUNT, where NAME is a login name, which uidOf resolves, or a UID. It leaves out
// lines that are none, names that are not known, and ranges of root: its subordinate UIDs are not root.
func Parse(r io.Reader, uidOf func(name string) (uint32, bool)) ([]Range, error) {
	var out []Range
	lines := bufio.NewScanner(r)
	for n := 0; lines.Scan() && n < maxLines; n++ {
		if one, ok := parseLine(lines.Text(), uidOf); ok {
			out = append(out, one)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read subordinate UIDs: %w (%w)", err, sharing.ErrUnavailable)
	}
	return out, nil
}

func parseLine(line string, uidOf func(name string) (uint32, bool)) (Range, bool) {
	fields := strings.Split(strings.TrimSpace(line), ":")
	if len(fields) != 3 {
		return Range{}, false
	}
	first, err1 := strconv.ParseUint(fields[1], 10, 32)
	count, err2 := strconv.ParseUint(fields[2], 10, 32)
	if err1 != nil || err2 != nil || count == 0 || first+count-1 > math.MaxUint32 {
		return Range{}, false
	}
	owner, known := uidOf(fields[0])
	if number, err := strconv.ParseUint(fields[0], 10, 32); !known && err == nil {
		owner, known = uint32(number), true
	}
	if !known || owner == 0 {
		return Range{}, false
	}
	return Range{Owner: owner, First: uint32(first), Count: uint32(count)}, true
}

// OwnerOf is the user to whom a UID belongs: that of the first range that has it, else the UID itself.
func OwnerOf(ranges []Range, uid uint32) uint32 {
	for _, r := range ranges {
		if uid >= r.First && uid-r.First < r.Count {
			return r.Owner
		}
	}
	return uid
}

// File answers by a file that may change. It is safe for concurrent use; the zero value knows no ranges.
type File struct {
	ranges atomic.Pointer[[]Range]
	mu     sync.Mutex // held while the file is read
	was    os.FileInfo
}

// Read takes what the file has now, and resolves no name if it is the same as before. A file that is not there has no
// ranges. On an error the ranges stay as they were.
func (f *File) Read(path string, uidOf func(name string) (uint32, bool)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.ranges.Store(nil)
		f.was = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read subordinate UIDs: %w (%w)", err, sharing.ErrUnavailable)
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read subordinate UIDs: %w (%w)", err, sharing.ErrUnavailable)
	}
	if f.was != nil && os.SameFile(f.was, is) && f.was.ModTime().Equal(is.ModTime()) && f.was.Size() == is.Size() {
		return nil
	}
	ranges, err := Parse(file, uidOf)
	if err != nil {
		return err
	}
	f.ranges.Store(&ranges)
	f.was = is
	return nil
}

// OwnerOf is OwnerOf by the file as it was read last.
func (f *File) OwnerOf(uid uint32) uint32 {
	if ranges := f.ranges.Load(); ranges != nil {
		return OwnerOf(*ranges, uid)
	}
	return uid
}
