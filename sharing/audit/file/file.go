// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package file keeps the audit log of a node in files of one directory: audit-00000001.jsonl and so on. The numbers are
// those of the first entry in each.
//
// It promises: Write never waits for a disk. What was written is given to the kernel at once and is on the disk within
// SyncEvery. So a crash of the agent loses what waited at that moment, and a crash of the machine at most SyncEvery
// more. A partial last line, which a crash leaves, is removed at the start and noted in the next entry. Nothing else is
// ever changed; if a log is damaged, a new file follows it and says so. Entries that do not fit are counted in the log.
//
// The oldest files are removed when there are more than the options allow.
package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

const (
	// SyncEvery is how long an entry may be in the kernel alone.
	SyncEvery = time.Second
	// queue is how many entries may wait.
	queue = 4096
	// retry is how long it is until a disk that refused is tried again.
	retry = time.Second

	prefix, suffix = "audit-", ".jsonl"
	digits         = 8
)

// Options say where the log is and how large it may get.
type Options struct {
	// Dir is made if it is not there, for root alone.
	Dir string
	// Node is put into each entry.
	Node string
	// MaxBytes is the size at which a file is closed, and Files how many are kept; 0 for DefaultBytes and DefaultFiles.
	MaxBytes int64
	Files    int
	Log      *slog.Logger
}

// The bounds of a log by default.
const (
	DefaultBytes = 16 << 20
	DefaultFiles = 16
)

// Log is a log that is written. Its methods may be called at once from several goroutines.
type Log struct {
	opt Options
	// queue has room from the start, so it has pointers: entries would take 1 MiB.
	queue chan *audit.Entry

	mu   sync.Mutex
	lost int

	// What follows is Run's alone.
	tail     audit.Tail
	out      *os.File
	size     int64
	unsynced bool
}

// Open finds the end of the log, removes a partial last line and notes the start. It writes nothing before Run. Errors
// are those of the disk, and wrap sharing.ErrUnavailable.
func Open(o Options) (*Log, error) {
	o.MaxBytes, o.Files = cmp.Or(o.MaxBytes, DefaultBytes), cmp.Or(o.Files, DefaultFiles)
	l := &Log{opt: o, queue: make(chan *audit.Entry, queue)}
	why, err := l.resume()
	if err != nil {
		return nil, fmt.Errorf("open audit log %q: %w (%w)", o.Dir, err, sharing.ErrUnavailable)
	}
	l.Write(audit.Entry{Type: audit.Start, Time: time.Now(), Reason: why})
	return l, nil
}

// Write appends an entry. It returns at once; an entry for which there is no room is counted as lost.
func (l *Log) Write(e audit.Entry) {
	if e.Node == "" {
		e.Node = l.opt.Node
	}
	select {
	case l.queue <- &e:
	default:
		l.mu.Lock()
		l.lost++
		l.mu.Unlock()
	}
}

// resume finds the end of what is there, and says how it was found.
func (l *Log) resume() (why string, err error) {
	if err := os.MkdirAll(l.opt.Dir, 0o700); err != nil {
		return "", err
	}
	names, err := Files(l.opt.Dir)
	if err != nil || len(names) == 0 {
		return "the log begins", err
	}
	last := names[len(names)-1]
	data, err := os.ReadFile(last)
	if err != nil {
		return "", err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	why = "the agent started"
	if torn := len(data) - whole; torn > 0 {
		if err := os.Truncate(last, int64(whole)); err != nil {
			return "", err
		}
		why = fmt.Sprintf("the agent started; removed %d bytes of an incomplete line", torn)
		l.opt.Log.Warn("removed incomplete line from the audit log", "file", last, "bytes", torn)
	}
	var v audit.Verifier
	for line := range bytes.Lines(data[:whole]) {
		if _, err := v.Next(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			// Evidence is left as it is. The next entries stand in a file of their own, on the last that can be read.
			l.opt.Log.Error("failed to recover the audit log", "file", last, "error", err.Error())
			why = fmt.Sprintf("the agent started; file %s is not whole: %v", filepath.Base(last), err)
			l.size = l.opt.MaxBytes
		}
	}
	l.tail = v.Tail()
	if l.tail.Seq == 0 && len(names) > 1 { // a file that was just begun
		end, err := Verify(names[:len(names)-1], nil)
		if l.tail = end.Tail; err != nil {
			l.size = l.opt.MaxBytes
		}
	}
	if l.size == 0 {
		l.size = int64(whole)
		l.out, err = os.OpenFile(last, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	return why, err
}

// Run writes what comes until ctx ends, and then what waits.
func (l *Log) Run(ctx context.Context) error {
	t := time.NewTicker(SyncEvery)
	defer t.Stop()
	for {
		select {
		case e := <-l.queue:
			l.put(ctx, *e)
		case <-t.C:
			l.noteLost(ctx)
			l.sync()
		case <-ctx.Done():
			return l.finish(context.WithoutCancel(ctx))
		}
	}
}

// finish writes what waits, and closes.
func (l *Log) finish(ctx context.Context) error {
	done, cancel := context.WithCancel(ctx)
	cancel() // a disk that refuses is not waited for
	for {
		select {
		case e := <-l.queue:
			l.put(done, *e)
			continue
		default:
		}
		l.noteLost(done)
		l.sync()
		if l.out == nil {
			return nil
		}
		if err := l.out.Close(); err != nil {
			return fmt.Errorf("close audit log: %w (%w)", err, sharing.ErrUnavailable)
		}
		return nil
	}
}

func (l *Log) noteLost(ctx context.Context) {
	l.mu.Lock()
	n := l.lost
	l.lost = 0
	l.mu.Unlock()
	if n > 0 {
		l.put(ctx, audit.Entry{Type: audit.Lost, Node: l.opt.Node, Time: time.Now(),
			Reason: fmt.Sprintf("%d entries came too fast for the disk", n)})
	}
}

// put writes one entry; a disk that refuses is tried again until ctx ends.
func (l *Log) put(ctx context.Context, e audit.Entry) {
	line, next, err := l.tail.Append(e)
	if err != nil {
		l.opt.Log.Error("failed to encode audit entry", "type", e.Type, "error", err.Error())
		return
	}
	for said := false; ; said = true {
		err := l.append(line)
		if err == nil {
			l.tail = next
			return
		}
		if !said {
			l.opt.Log.Error("failed to write audit log, will retry", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// append writes a whole line, or leaves none of it.
func (l *Log) append(line []byte) error {
	if l.out == nil || l.size+int64(len(line)) > l.opt.MaxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.out.Write(line)
	if err != nil {
		return errors.Join(err, l.out.Truncate(l.size))
	}
	l.size += int64(n)
	l.unsynced = true
	return nil
}

func (l *Log) sync() {
	if l.out == nil || !l.unsynced {
		return
	}
	if err := l.out.Sync(); err != nil {
		l.opt.Log.Error("failed to sync audit log", "error", err.Error())
		return
	}
	l.unsynced = false
}

// rotate begins the next file, and removes the oldest.
func (l *Log) rotate() error {
	next, err := l.create(l.tail.Seq + 1)
	if err != nil {
		return err
	}
	if l.out != nil {
		l.sync()
		if err := l.out.Close(); err != nil {
			l.opt.Log.Warn("failed to close audit file", "error", err.Error())
		}
	}
	l.out, l.size = next, 0
	names, err := Files(l.opt.Dir)
	if err != nil {
		return nil //nolint:nilerr // what is too much is removed the next time
	}
	for _, old := range names[:max(0, len(names)-l.opt.Files)] {
		if err := os.Remove(old); err != nil {
			l.opt.Log.Warn("failed to remove old audit file", "file", old, "error", err.Error())
		}
	}
	return nil
}

// create makes the file that begins with that entry. An existing empty one was begun before a crash. One that is not
// empty, and cannot be continued, keeps its content.
func (l *Log) create(seq uint64) (*os.File, error) {
	for {
		name := filepath.Join(l.opt.Dir, fmt.Sprintf("%s%0*d%s", prefix, digits, seq, suffix))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		info, err := os.Lstat(name)
		if err != nil {
			return nil, err
		}
		if info.Size() == 0 && info.Mode().IsRegular() {
			return os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0o600)
		}
		seq++
	}
}

// Files are the paths of a log's files, oldest first.
func Files(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list audit log: %w", err)
	}
	type numbered struct {
		n    uint64
		path string
	}
	var found []numbered
	for _, e := range all {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		number, ends := strings.CutSuffix(number, suffix)
		if n, err := strconv.ParseUint(number, 10, 64); ok && ends && err == nil && e.Type().IsRegular() {
			found = append(found, numbered{n, filepath.Join(dir, e.Name())})
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return cmp.Compare(a.n, b.n) })
	var out []string
	for _, f := range found {
		out = append(out, f.path)
	}
	return out, nil
}
