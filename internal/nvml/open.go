// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// session holds one token while a Library is open or a call to open one is in the driver. It is the one
// piece of package state: what it guards, the library's single initialisation and the program's binding to
// it, belongs to the process and not to any value.
var session = make(chan struct{}, 1) //nolint:gochecknoglobals // see above

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
		return nil, fmt.Errorf("open nvml: another use of it in this process has not ended: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
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
			// Nobody waits any more: the driver hung and came back.
			if lib != nil {
				if err := lib.Close(); err != nil {
					opts.Log.Warn("nvml opened too late and did not close", "error", err)
				}
			}
		}
	}()
	select {
	case r := <-out:
		return r.lib, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("open nvml: the driver does not answer: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	}
}

// open does what may hang.
func open(opts Options) (*Library, error) {
	path, err := choose(append([]string{LibraryName}, opts.LibraryPaths...), opts)
	if err != nil {
		return nil, fmt.Errorf("open nvml: %w", err)
	}
	d, err := openDoor(path)
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
	opts.Log.Info("nvml is open", "library", l.path, "driver", l.system.DriverVersion)
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
	opts.Log.Debug("no nvml library", "tried", candidates)
	// The first reason is of the name that everybody looks for; the others are mostly "no such file".
	return "", fmt.Errorf("%w (tried %d places): %w", errNoLibrary, len(candidates), errs[0])
}
