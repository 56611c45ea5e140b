// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvml is the only adapter to NVIDIA's driver. It has the inventory, memory and processes as the driver sees
// them, faults, and the driver's memory limits per cgroup. For MIG it has the geometry, the instances, and the calls
// that create and destroy them.
//
// It promises an error of the vocabulary in package sharing, and never a crash or an endless wait. This holds for a
// library without a function, a missing library, a driver that is not loaded, a lost GPU, and a driver that hangs.
//
//   - Nothing is called before the library has been checked and initialised. Every function that some supported driver
//     lacks is looked up before it is called: a missing one would kill the process.
//   - Every call ends with its context, or after Options.CallTimeout. A call that hangs in the driver keeps
//     one goroutine per GPU; further calls on that GPU fail at once until it returns. Such a call may still
//     take effect later, which matters for what sets: memory limits, compute mode, MIG.
//   - What the driver cannot tell is said to be unknown. What no real GPU reports (no memory, no UUID, two
//     GPUs with one UUID) leaves the GPU out, with the reason.
//
// A process binds to one copy of the library for its life: bind resolves its functions once and keeps it loaded. So one
// Library is open at a time, and Open after Close works when the driver was reloaded. Another version of the library
// needs a new process. The program itself needs no function of the library. So it starts on a machine without a driver
// and with LD_BIND_NOW set.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// LibraryName is what is looked for first, wherever the dynamic linker finds it.
	LibraryName = "libnvidia-ml.so.1"

	defaultCallTimeout = 10 * time.Second
	defaultHangAfter   = time.Second
	defaultCloseWait   = 5 * time.Second
)

// Options say how to open the library. The zero value is usable.
type Options struct {
	// LibraryPaths are absolute files tried in order when LibraryName is not found; see DefaultLibraryPaths.
	// They are needed because the C library remembers which directories of LD_LIBRARY_PATH did not exist when
	// the process started, and never looks there again.
	LibraryPaths []string
	// ReadOnly rejects each call that changes a GPU, with a *sharing.ReadOnlyError. Memory limits of cgroups are
	// allowed.
	ReadOnly bool
	// CallTimeout bounds every call besides its context; 0 means 10 s.
	CallTimeout time.Duration
	// HangAfter is the age from which a call without a waiting caller counts as hung; 0 means 1 s.
	HangAfter time.Duration
	// Log may be nil.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.CallTimeout <= 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.HangAfter <= 0 {
		o.HangAfter = defaultHangAfter
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// System is what the driver says of itself.
type System struct {
	DriverVersion string
	NVMLVersion   string
	// CUDAVersion is the highest CUDA version that the driver serves, as 1000 * major + 10 * minor; 0 if unknown.
	CUDAVersion int
}

// CUDA is the highest CUDA version that the driver serves, such as "13.0"; empty if unknown.
func (s System) CUDA() string {
	if s.CUDAVersion <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", s.CUDAVersion/1000, s.CUDAVersion%1000/10)
}

// Library is an initialised NVML. It is safe for concurrent use.
type Library struct {
	Inventory
	Readings
	Limits
	Settings
	MIG
	*Faults

	driver    *driver
	system    System
	path      string
	closeWait time.Duration
	ended     func() // gives the process's one session back
}

func newLibrary(d adapter, opts Options, ended func()) *Library {
	dr := newDriver(d, opts.withDefaults())
	return &Library{
		Inventory: Inventory{dr}, Readings: Readings{driver: dr}, Limits: Limits{dr}, Settings: Settings{dr},
		MIG:    MIG{dr},
		Faults: newFaults(dr), driver: dr, ended: ended, closeWait: defaultCloseWait,
	}
}

// System returns what the driver said of itself at Open.
func (l *Library) System() System { return l.system }

// Path is the file that the library was loaded from, as the dynamic linker names it.
func (l *Library) Path() string { return l.path }

// Close ends the use of the library, so that Open may be called again. It waits for calls in progress and for
// WaitEvent's goroutine, but not longer than a few seconds. If the driver hangs, it returns sharing.ErrUnavailable, and
// the library is closed by itself once the driver comes back. Closing twice is harmless.
func (l *Library) Close() error {
	if !l.driver.end() {
		return nil
	}
	l.Faults.stop()
	done := make(chan error, 1)
	go func() {
		l.driver.calls.Wait() // first: a WaitEvent among them may just be starting the event loop
		l.Faults.wg.Wait()
		err := l.driver.adapter.shutdown()
		l.ended()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("close nvml: %w", err)
		}
		return nil
	case <-time.After(l.closeWait):
		return fmt.Errorf("close nvml: a call hangs in the driver: %w", sharing.ErrUnavailable)
	}
}

// session holds one token while a Library is open or a call to open one is in the driver. It is the only package
// state: the library's single initialization and the program's binding to it belong to the process and not to any
// value.
var session = make(chan struct{}, 1) //nolint:gochecknoglobals // see above

// Closed waits, within ctx, until no Library of this process is open, and no call to open one is in the driver. The
// error wraps sharing.ErrUnavailable.
func Closed(ctx context.Context) error {
	select {
	case session <- struct{}{}:
		<-session
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a call hangs in the driver: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	}
}

// Open loads the library and initialises it. It waits, within ctx, for an earlier Library of this process
// to be closed. All errors wrap sharing.ErrUnavailable when trying again later may work: no library, driver
// not loaded, driver hangs.
func Open(ctx context.Context, opts Options) (*Library, error) {
	opts = opts.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opts.CallTimeout)
	defer cancel()
	select {
	case session <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("open nvml: another use of it in this process has not ended: %w (%w)",
			context.Cause(ctx), sharing.ErrUnavailable)
	}
	type result struct {
		lib *Library
		err error
	}
	out := make(chan result)
	go func() {
		lib, err := open(opts)
		if err != nil {
			<-session
		}
		select {
		case out <- result{lib, err}:
		case <-ctx.Done():
			// The caller has left: the driver hung and came back.
			if lib != nil {
				if err := lib.Close(); err != nil {
					opts.Log.Warn("failed to close NVML that opened too late", "error", err)
				}
			}
		}
	}()
	select {
	case r := <-out:
		return r.lib, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("open nvml: the driver does not answer: %w (%w)", context.Cause(ctx),
			sharing.ErrUnavailable)
	}
}

// open does what may hang.
func open(opts Options) (*Library, error) {
	path, err := choose(append([]string{LibraryName}, opts.LibraryPaths...), opts)
	if err != nil {
		return nil, fmt.Errorf("open nvml: %w", err)
	}
	d, err := openAdapter(path)
	if err != nil {
		return nil, fmt.Errorf("open nvml: %w", err)
	}
	l := newLibrary(d, opts, func() { <-session })
	if l.path = boundLibrary(); l.path == "" {
		l.path = path
	}
	if l.system, err = d.system(); err != nil {
		err = errors.Join(err, d.shutdown())
		return nil, fmt.Errorf("open nvml: %w", err)
	}
	opts.Log.Info("opened NVML", "library", l.path, "driver", l.system.DriverVersion)
	return l, nil
}

// choose returns the first library that can be used. Once the process is bound to one, it is that one.
func choose(candidates []string, opts Options) (string, error) {
	if bound := boundLibrary(); bound != "" {
		return bound, preflight(bound)
	}
	errs := []error{}
	for _, c := range candidates {
		err := preflight(c)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	opts.Log.Debug("failed to find NVML library", "tried", candidates)
	// The first reason is of the name that everybody looks for; the others are mostly "no such file".
	return "", fmt.Errorf("%w (tried %d places): %w", errNoLibrary, len(candidates), errs[0])
}
