// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
	opts      Options
	door      door
	system    System
	path      string
	closeWait time.Duration
	ended     func() // gives the process's one session back

	systemLane *lane
	calls      sync.WaitGroup // every call in the driver
	events     *eventLoop

	mu     sync.Mutex
	closed bool
	slots  map[int]*lane           // by NVML index, for GPUs that are not known yet
	lanes  map[sharing.GPUID]*lane // a known GPU's lane is its slot's
	known  map[sharing.GPUID]device
	links  map[sharing.GPUID]linkCount
}

func newLibrary(d door, opts Options, ended func()) *Library {
	opts = opts.withDefaults()
	l := &Library{
		opts: opts, door: d, ended: ended, closeWait: defaultCloseWait, systemLane: newLane("the driver", opts.HangAfter),
		slots: map[int]*lane{}, lanes: map[sharing.GPUID]*lane{}, known: map[sharing.GPUID]device{}, links: map[sharing.GPUID]linkCount{},
	}
	l.events = newEventLoop(l)
	return l
}

// System returns what the driver said of itself at Open.
func (l *Library) System() System { return l.system }

// Path is the file that the library was loaded from, as the dynamic linker names it.
func (l *Library) Path() string { return l.path }

// HasMemoryLimits reports whether the library has the functions of the driver's memory limits (driver r615
// and newer). Whether the kernel side works is another question; see package caps.
func (l *Library) HasMemoryLimits() bool { return l.door.hasLimits() }

// Close ends the use of the library, so that Open may be called again. It waits for calls in progress and
// for WaitEvent's goroutine, but not longer than a few seconds: when the driver hangs it returns
// sharing.ErrUnavailable, and the library is closed by itself once the driver comes back. Closing twice is
// harmless.
func (l *Library) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.events.stop()
	done := make(chan error, 1)
	go func() {
		l.calls.Wait() // first: a WaitEvent among them may just be starting the event loop
		l.events.join()
		err := l.door.shutdown()
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

// begin notes one more call, unless the library is closed.
func (l *Library) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("nvml is closed: %w", sharing.ErrUnavailable)
	}
	l.calls.Add(1)
	return nil
}

// call runs fn in the lane, with the library's timeout besides the context.
func call[T any](ctx context.Context, l *Library, way *lane, fn func() (T, error)) (T, error) {
	if err := l.begin(); err != nil {
		var zero T
		return zero, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.CallTimeout)
	defer cancel()
	return in(ctx, way, l.calls.Done, fn)
}

// onGPU runs fn with the GPU's handle in its lane.
func onGPU[T any](ctx context.Context, l *Library, what string, id sharing.GPUID, fn func(device) (T, error)) (T, error) {
	v, err := call(ctx, l, l.laneOf(id), func() (T, error) {
		dev, err := l.handle(id)
		if err != nil {
			var zero T
			return zero, err
		}
		return fn(dev)
	})
	if err != nil {
		return v, fmt.Errorf("%s of gpu %q: %w", what, string(id), err)
	}
	return v, nil
}

// change is onGPU for a call that changes the GPU. Every such call but the memory limit goes through it.
func change[T any](ctx context.Context, l *Library, what string, id sharing.GPUID, fn func(device) (T, error)) (T, error) {
	if l.opts.ReadOnly {
		var zero T
		return zero, fmt.Errorf("gpu %q: %w", string(id), &sharing.ReadOnlyError{Change: what})
	}
	return onGPU(ctx, l, what, id, fn)
}

// handle returns the handle of id. A handle stays good until the library is closed, also when the GPU is
// lost: it then answers so.
func (l *Library) handle(id sharing.GPUID) (device, error) {
	l.mu.Lock()
	dev := l.known[id]
	l.mu.Unlock()
	if dev != nil {
		return dev, nil
	}
	if err := checkUUID(id); err != nil {
		return nil, err
	}
	dev, err := l.door.byUUID(id)
	if errors.Is(err, sharing.ErrInvalid) {
		err = fmt.Errorf("%w (%w)", err, sharing.ErrNotFound) // well formed, and the driver does not take it
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[id] = dev
	return dev, nil
}

func (l *Library) laneOf(id sharing.GPUID) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	way := l.lanes[id]
	if way == nil {
		if checkUUID(id) != nil {
			// Not worth remembering: handle refuses it without a call.
			return newLane("no gpu", l.opts.HangAfter)
		}
		way = newLane(fmt.Sprintf("gpu %q", string(id)), l.opts.HangAfter)
		l.lanes[id] = way
	}
	return way
}

// checkUUID refuses what cannot be a GPU's UUID: NVML's are "GPU-" and hexadecimal groups. MIG instances have
// other names and are never meant here.
func checkUUID(id sharing.GPUID) error {
	s, ok := strings.CutPrefix(string(id), "GPU-")
	bad := func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF-", r) }
	if !ok || s == "" || len(s) > 64 || strings.ContainsFunc(s, bad) {
		return sharing.Invalid("gpu", string(id), "write a UUID as nvidia-smi -L shows it, such as GPU-0123abcd-...", "is not a GPU's UUID")
	}
	return nil
}
