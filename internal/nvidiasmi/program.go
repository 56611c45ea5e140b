// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvidiasmi is the adapter to the program nvidia-smi, for the one setting without an NVML call: a GPU's time
// slice (nvidia-smi compute-policy).
//
// It promises that a call ends by its deadline, whatever the program does. At most one of it runs at a time: a second
// does not start while a killed one still hangs in the driver. Every new time slice is read back.
//
// Not promised: that a read always tells. The program's output is made for people, and may change; a read that is not
// understood is sharing.ErrUnsupported, and never a guess.
package nvidiasmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// deadline bounds one call of the program; it takes a second on nodes with many GPUs.
	deadline = 20 * time.Second
	// killTime is how long its output is read after it was killed.
	killTime = time.Second
	// maxOutput is all that is kept of what it prints.
	maxOutput = 64 << 10
)

// Program is an nvidia-smi on disk. It is safe for concurrent use; calls are made one at a time.
type Program struct {
	path     string
	readOnly bool
	env      []string
	turn     chan struct{} // holds a token while the program runs
}

// Options say which program it is.
type Options struct {
	// Path is absolute.
	Path string
	// Libraries are folders in which it finds the driver's libraries as well.
	Libraries []string
	// ReadOnly rejects each change of a GPU, with a *sharing.ReadOnlyError.
	ReadOnly bool
}

// New returns the program. It gets nothing of this process's environment.
func New(o Options) *Program {
	p := &Program{path: o.Path, readOnly: o.ReadOnly, env: []string{"LC_ALL=C"}, turn: make(chan struct{}, 1)}
	if len(o.Libraries) > 0 {
		p.env = append(p.env, "LD_LIBRARY_PATH="+strings.Join(o.Libraries, ":"))
	}
	return p
}

// Find returns the path of nvidia-smi. It is named, if that is not empty, else that of a simulated node, of the system,
// or of a driver in a container. The folder devRoot has dev/nvidiaN.
func Find(named, devRoot string) string {
	if named != "" {
		return named
	}
	places := []string{filepath.Join(devRoot, "bin/nvidia-smi"), "/usr/bin/nvidia-smi",
		"/run/nvidia/driver/usr/bin/nvidia-smi"}
	for _, p := range places {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return p
		}
	}
	return places[1]
}

// SetTimeSlice sets a GPU's time slice and reads it back. It needs root. The error is sharing.ErrInvalid for a slice
// that no GPU can have, and sharing.ErrConflict if another value reads back. It is sharing.ErrUnsupported if the slice
// cannot be read (it is then set) or there is no such program, and sharing.ErrUnavailable for all else.
func (p *Program) SetTimeSlice(ctx context.Context, gpu sharing.GPUID, slice sharing.TimeSlice) error {
	if p.readOnly {
		return fmt.Errorf("gpu %q: %w", string(gpu), &sharing.ReadOnlyError{Change: "set time slice"})
	}
	number := -1
	for i, s := range sharing.TimeSlices() {
		if s == slice {
			number = i
		}
	}
	if number < 0 {
		return fmt.Errorf("set time slice %d of gpu %q: %w", slice, string(gpu), sharing.ErrInvalid)
	}
	if _, err := p.run(ctx, "compute-policy", "-i", string(gpu), "--set-timeslice", strconv.Itoa(number)); err != nil {
		return fmt.Errorf("set time slice of gpu %q: %w", string(gpu), err)
	}
	got, err := p.TimeSlice(ctx, gpu)
	if err != nil {
		return err
	}
	if got != slice {
		return fmt.Errorf("set time slice of gpu %q: it reads back as %s, not %s: %w", string(gpu), got, slice,
			sharing.ErrConflict)
	}
	return nil
}

// TimeSlice reads a GPU's time slice. Errors: sharing.ErrUnsupported where the output is not understood or there is no
// such program, sharing.ErrUnavailable for all else.
func (p *Program) TimeSlice(ctx context.Context, gpu sharing.GPUID) (sharing.TimeSlice, error) {
	out, err := p.run(ctx, "compute-policy", "-i", string(gpu), "--list")
	if err == nil {
		var slice sharing.TimeSlice
		if slice, err = parseList(out); err == nil {
			return slice, nil
		}
	}
	return sharing.TimeSliceAsIs, fmt.Errorf("read time slice of gpu %q: %w", string(gpu), err)
}

// parseList finds the one time slice in a list of one GPU: a separate word, in any frame.
func parseList(out string) (sharing.TimeSlice, error) {
	found := sharing.TimeSliceAsIs
	for line := range strings.Lines(out) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n|:,=+-", r) })
		if len(words) == 0 {
			continue
		}
		slice, err := sharing.ParseTimeSlice("", strings.ToLower(words[len(words)-1]))
		if err != nil {
			continue
		}
		if found != sharing.TimeSliceAsIs {
			return sharing.TimeSliceAsIs, fmt.Errorf("nvidia-smi lists more than one: %w", sharing.ErrUnsupported)
		}
		found = slice
	}
	if found == sharing.TimeSliceAsIs {
		return found, fmt.Errorf("nvidia-smi does not list it in a way that is understood: %w", sharing.ErrUnsupported)
	}
	return found, nil
}

// run starts the program and returns what it printed. A killed program that is stuck in the driver does not end. It
// blocks the next run and one goroutine until it does.
func (p *Program) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("an earlier nvidia-smi has not ended: %w (%w)", context.Cause(ctx),
			sharing.ErrUnavailable)
	}
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	var out limited
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.env, "/", &out, &out, killTime
	go func() {
		defer func() { <-p.turn }()
		err := cmd.Run()
		done <- result{out.buf.String(), err}
	}()
	select {
	case r := <-done:
		return r.out, judge(ctx, r.out, r.err)
	case <-ctx.Done():
	}
	select { // it may just have been killed
	case r := <-done:
		return r.out, judge(ctx, r.out, r.err)
	case <-time.After(2 * killTime):
		return "", fmt.Errorf("nvidia-smi does not end: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	}
}

// judge makes an error of how the program ended.
func judge(ctx context.Context, out string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("nvidia-smi was too slow: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start nvidia-smi: %w (%w)", err, sharing.ErrUnsupported)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return fmt.Errorf("nvidia-smi says %q: %w (%w)", first[:min(len(first), 200)], err, sharing.ErrUnavailable)
}

// limited keeps the beginning of what is written.
type limited struct{ buf bytes.Buffer }

// Write implements io.Writer and never fails, so that the program is not stopped by its own talk.
func (l *limited) Write(b []byte) (int, error) {
	l.buf.Write(b[:min(len(b), max(0, maxOutput-l.buf.Len()))])
	return len(b), nil
}
