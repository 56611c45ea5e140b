// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// footprint is what an agent may leak.
type footprint struct {
	goroutines, files int
	heap, checkpoint  int64
}

func (b *bench) footprint() (f footprint) {
	b.t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.t.Fatal(err)
	}
	checkpoint, err := os.Stat(b.opt.RecordPath)
	if err != nil {
		b.t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), len(files), int64(m.HeapAlloc), checkpoint.Size()}
}

// podOfKind is one pod from its sandbox to its end: it runs, never starts, is too large, or has an init container.
func (b *bench) podOfKind(kind int, name string) {
	b.t.Helper()
	switch kind {
	case 0:
		b.run(b.app(name, "gpu-memory-gib:10")).remove()
	case 1:
		b.inject(b.app(name, "gpu-memory-gib:10"))
	case 2:
		if _, err := b.Inject(b.t.Context(), b.app(name, "gpu-memory-gib:1000"), b.newID()); !errors.Is(err,
			sharing.ErrUnsupported) {
			b.t.Errorf("a pod that is too large: %v", err)
		}
	case 3:
		b.run(b.initc(name, "init", "gpu-memory-gib:4")).remove()
		b.run(b.app(name, "gpu-memory-gib:10", "gpu-percent:10")).remove()
	}
	b.gone(name)
}

// 1,000 pods that come and go leave no grant, goroutine, descriptor or file content, and no memory that grows with
// them.
func TestThousandPodsLeaveNothing(t *testing.T) {
	const warm, pods, perPod = 100, 1000, 64
	b := newPodBench(t)
	b.still()
	batch := func(from, to int) footprint {
		// whose end frees what the test itself remembers of its processes
		t.Run(fmt.Sprintf("to %d", to), func(t *testing.T) {
			all := b.t
			b.t = t
			defer func() { b.t = all }()
			for i := from; i < to; i++ {
				b.podOfKind(i%4, fmt.Sprintf("p%03d", i))
			}
		})
		return b.footprint()
	}
	before, after := batch(0, warm), batch(warm, pods)
	// The last one to wake others may not have ended yet.
	eventually.True(t, "the end of goroutines", func() bool { return runtime.NumGoroutine() <= before.goroutines })
	if after.files > before.files || after.checkpoint != before.checkpoint {
		t.Errorf("after %d pods %+v, after %d pods %+v", warm, before, pods, after)
	}
	if grown := after.heap - before.heap; grown > (pods-warm)*perPod {
		t.Errorf("the heap grew by %d bytes in %d pods", grown, pods-warm)
	}
	t.Logf("%+v, %+v", before, after)
}
