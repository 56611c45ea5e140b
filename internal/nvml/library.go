// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
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
	// ReadOnly rejects each call that changes a GPU, with a *sharing.ReadOnlyError. Memory limits of cgroups are allowed.
	ReadOnly bool
	// CallTimeout bounds every call besides its context; 0 means 10 s.
	CallTimeout time.Duration
	// HangAfter is the age from which a call that nobody waits for any more counts as hung; 0 means 1 s.
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
	// CUDAVersion is the highest CUDA version that the driver serves, as 1000 * major + 10 * minor; 0 when
	// it is not told.
	CUDAVersion int
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

func newLibrary(d door, opts Options, ended func()) *Library {
	dr := newDriver(d, opts.withDefaults())
	return &Library{
		Inventory: Inventory{dr}, Readings: Readings{driver: dr}, Limits: Limits{dr}, Settings: Settings{dr}, MIG: MIG{dr},
		Faults: newFaults(dr), driver: dr, ended: ended, closeWait: defaultCloseWait,
	}
}

// System returns what the driver said of itself at Open.
func (l *Library) System() System { return l.system }

// Path is the file that the library was loaded from, as the dynamic linker names it.
func (l *Library) Path() string { return l.path }

// Close ends the use of the library, so that Open may be called again. It waits for calls in progress and
// for WaitEvent's goroutine, but not longer than a few seconds: when the driver hangs it returns
// sharing.ErrUnavailable, and the library is closed by itself once the driver comes back. Closing twice is
// harmless.
func (l *Library) Close() error {
	if !l.driver.end() {
		return nil
	}
	l.Faults.stop()
	done := make(chan error, 1)
	go func() {
		l.driver.calls.Wait() // first: a WaitEvent among them may just be starting the event loop
		l.Faults.wg.Wait()
		err := l.driver.door.shutdown()
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
