// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

// blockSize is how much of a file is read at once, in bytes. A block ends with the line that fills it, so it has up to
// audit.MaxLine more.
const blockSize = 64 << 10

// Index finds the entries of one kind without reading the whole log for each question. It reads each byte of the log
// once, and remembers which parts have such entries, and until when. Its methods may be called at once from several
// goroutines.
type Index struct {
	dir string
	// marks has a text that is in the head of each line of the kind, in the present and in the earlier form.
	marks [2][]byte

	mu    sync.Mutex
	files map[string]*indexed
	// scanned counts the bytes that were read to know the log.
	scanned int64
}

// indexed is what is known of one file.
type indexed struct {
	// size is how much of it is known: whole lines.
	size   int64
	blocks []Block
}

// Block is a part of a file that has entries of the Index's kind.
type Block struct {
	path     string
	from, to int64
	// newest is the time of the latest entry.
	newest time.Time
	marks  [2][]byte
}

// NewIndex makes an Index of the entries of a kind, such as audit.Usage, in a directory.
func NewIndex(dir, kind string) *Index {
	return &Index{dir: dir, marks: marksOf(kind), files: map[string]*indexed{}}
}

// marksOf are the texts by which marked finds the kind. Entries of the kinds that had another name in the earlier form
// are found in the present form only.
func marksOf(kind string) [2][]byte {
	return [2][]byte{fmt.Appendf(nil, `,"type":%q`, kind), fmt.Appendf(nil, `,"what":%q`, kind)}
}

// Since returns the blocks that have entries after t, oldest file first. Errors wrap sharing.ErrUnavailable.
func (x *Index) Since(t time.Time) ([]Block, error) {
	paths, err := Files(x.dir)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for known := range x.files {
		if !slices.Contains(paths, known) {
			delete(x.files, known)
		}
	}
	var out []Block
	for _, path := range paths {
		if err := x.update(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was rotated away
			return nil, fmt.Errorf("read audit log %q: %w (%w)", path, err, sharing.ErrUnavailable)
		}
		if f := x.files[path]; f != nil {
			for _, b := range f.blocks {
				if b.newest.After(t) {
					out = append(out, b)
				}
			}
		}
	}
	return out, nil
}

// update reads what a file has more than is known. It needs the lock.
func (x *Index) update(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	known := x.files[path]
	if known == nil || info.Size() < known.size { // an incomplete line was removed
		known = &indexed{}
		x.files[path] = known
	}
	if info.Size() == known.size {
		return nil
	}
	return x.scan(path, io.NewSectionReader(f, known.size, info.Size()-known.size), known)
}

// scan adds the whole lines of in to what is known. It needs the lock.
func (x *Index) scan(path string, in io.Reader, known *indexed) error {
	r := bufio.NewReaderSize(in, audit.MaxLine)
	block := Block{path: path, from: known.size, to: known.size, marks: x.marks}
	keep := func() {
		if !block.newest.IsZero() {
			known.blocks = append(known.blocks, block)
		}
		block = Block{path: path, from: known.size, to: known.size, marks: x.marks}
	}
	defer func() { keep() }()
	for {
		line, size, err := wholeLine(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		x.scanned += int64(size)
		known.size += int64(size)
		block.to = known.size
		if at, ok := x.timeOf(line); ok && at.After(block.newest) {
			block.newest = at
		}
		if block.to-block.from >= blockSize {
			keep()
		}
	}
}

// wholeLine reads the next line that has an end, and its size. The line is nil if it is too long for an entry.
func wholeLine(r *bufio.Reader) (line []byte, size int, err error) {
	line, err = r.ReadSlice('\n')
	size = len(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = r.ReadSlice('\n')
		line, size = nil, size+len(more)
	}
	return line, size, err
}

// timeOf is the time of an entry of the kind.
func (x *Index) timeOf(line []byte) (time.Time, bool) {
	if !marked(line, x.marks) {
		return time.Time{}, false
	}
	var head struct {
		Time time.Time `json:"time"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return time.Time{}, false
	}
	return head.Time, true
}

// headSize is more than the fields of an entry before its kind have.
const headSize = 160

// marked looks for the kind in the head of a line. It may be true for another kind, and is never false for this one.
func marked(line []byte, marks [2][]byte) bool {
	head := line[:min(len(line), headSize)]
	return bytes.Contains(head, marks[0]) || bytes.Contains(head, marks[1])
}

// Read calls each with the lines of the block's entries after t whose own sum is right, without their newline. A line
// is good until each returns. A file that was rotated away has none. Errors wrap sharing.ErrUnavailable.
func (b Block) Read(t time.Time, each func(line []byte)) error {
	f, err := os.Open(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read audit log: %w (%w)", err, sharing.ErrUnavailable)
	}
	defer f.Close()
	data := make([]byte, b.to-b.from)
	if _, err := f.ReadAt(data, b.from); err != nil {
		return fmt.Errorf("read audit log %q: %w (%w)", b.path, err, sharing.ErrUnavailable)
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if !marked(line, b.marks) {
			continue
		}
		if e, err := audit.Parse(line); err == nil && e.Time.After(t) && bytes.Equal(marksOf(e.Type)[0], b.marks[0]) {
			each(line)
		}
	}
	return nil
}
