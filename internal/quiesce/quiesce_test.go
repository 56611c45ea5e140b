// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package quiesce

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	gpuA = sharing.GPUID("GPU-00000000-0000-0000-0000-000000000001")
	gpuB = sharing.GPUID("GPU-00000000-0000-0000-0000-000000000002")
)

// mustRead reads as a separate process would.
func mustRead(t *testing.T, d Dir, gpu sharing.GPUID) func() {
	t.Helper()
	r := d.Reader()
	done, err := r.Read(gpu)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		done()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Who asks gets the GPU when the last reader is done, keeps new ones off it alone, and gives it back.
func TestAskAndRead(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "quiet"))
	mustRead(t, d, gpuA)() // no folder yet: no request
	if release, err := d.Quiesce(t.Context(), gpuA); err != nil {
		t.Fatal(err)
	} else {
		release()
	}
	one, two := mustRead(t, d, gpuA), mustRead(t, d, gpuA)
	here := d.Reader()
	defer here.Close()
	short, cancel := context.WithTimeout(t.Context(), 3*poll)
	defer cancel()
	if _, err := d.Quiesce(short, gpuA); !errors.Is(err, sharing.ErrUnavailable) {
		t.Fatalf("two read: %v", err)
	}
	mustRead(t, d, gpuA)() // who asked in vain does not ask any more
	got := make(chan func())
	go func() {
		release, err := d.Quiesce(context.WithoutCancel(t.Context()), gpuA)
		if err != nil {
			t.Error(err)
		}
		got <- release
	}()
	for refused := false; !refused; time.Sleep(poll) { // from when it asks on
		done, err := here.Read(gpuA)
		if refused = errors.Is(err, sharing.ErrUnavailable); !refused {
			done()
		}
	}
	one()
	two()
	release := <-got
	if _, err := here.Read(gpuA); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("read while another has it: %v", err)
	}
	mustRead(t, d, gpuB)()
	if _, err := d.Quiesce(short, gpuA); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a second one asks: %v", err)
	}
	release()
	mustRead(t, d, gpuA)()
}

// One reader's reads share one lock. A lock that it has already does not let it read on after a request.
func TestReadTwice(t *testing.T) {
	d := Dir(t.TempDir())
	r := d.Reader()
	read := func() func() {
		t.Helper()
		done, err := r.Read(gpuA)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	one, two := read(), read()
	one()
	asking := make(chan func())
	go func() {
		release, err := d.Quiesce(context.WithoutCancel(t.Context()), gpuA)
		if err != nil {
			t.Error(err)
		}
		asking <- release
	}()
	for refused := false; !refused; time.Sleep(poll) {
		done, err := r.Read(gpuA)
		if refused = errors.Is(err, sharing.ErrUnavailable); !refused {
			done()
		}
	}
	select {
	case <-asking:
		t.Error("it is given while one reads")
	case <-time.After(3 * poll):
	}
	two()
	(<-asking)()
	read()()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
