// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

/*
#include <stdint.h>

// nvmlProcessInfo_v2_t, which the second and the third version of the lists have.
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } kerf_process;
_Static_assert(sizeof(void *) != 8 || sizeof(kerf_process) == 24, "layout of nvmlProcessInfo_v2_t");

// nvmlProcessUtilizationSample_t
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } kerf_time;
_Static_assert(sizeof(void *) != 8 || sizeof(kerf_time) == 32, "layout of nvmlProcessUtilizationSample_t");

typedef int (*kerf_list_fn)(void *, unsigned *, kerf_process *);
typedef int (*kerf_times_fn)(void *, kerf_time *, unsigned *, unsigned long long);

static int kerf_list(void *list_fn, void *dev, unsigned *count, kerf_process *out)
{
	return ((kerf_list_fn)list_fn)(dev, count, out);
}

static int kerf_times(void *times_fn, void *dev, kerf_time *out, unsigned *count, unsigned long long since)
{
	return ((kerf_times_fn)times_fn)(dev, out, count, since);
}
*/
import "C"

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// computeList is the function that lists compute processes, and timesList lists what processes did. With go-nvml the
// driver goes through all processes twice, because it asks each time for the length before the list. The type lists
// asks once, with a buffer for as many as there were.
const (
	computeList = "nvmlDeviceGetComputeRunningProcesses"
	timesList   = "nvmlDeviceGetProcessUtilization"
)

// spareRoom is how many more processes the next call can list.
const spareRoom = 32

// lists asks for lists of compute processes, and of what processes did.
type lists struct {
	handles   *handles
	fn, times unsafe.Pointer

	mu   sync.Mutex
	gpus map[nvml.Device]*listed
}

// listed is what is kept of a GPU's lists. One call at a time uses it: a GPU's calls are in one lane.
type listed struct {
	uuid  string
	room  []C.kerf_process
	times []C.kerf_time
	// last is the last reported process list; it is immutable.
	last []resident
}

func openLists(h *handles) *lists {
	fn := dlsym(h.lib, computeList+"_v3")
	if fn == nil {
		fn = dlsym(h.lib, computeList+"_v2")
	}
	return &lists{handles: h, fn: fn, times: dlsym(h.lib, timesList), gpus: map[nvml.Device]*listed{}}
}

// gpu is what is kept of a GPU, and its handle; nil where go-nvml has to ask.
func (l *lists) gpu(dev nvml.Device) (*listed, unsafe.Pointer) {
	if l.handles.find == nil {
		return nil, nil
	}
	g := l.of(dev)
	if g == nil {
		return nil, nil
	}
	handle, err := l.handles.device(g.uuid)
	if err != nil {
		return nil, nil
	}
	return g, handle
}

// compute lists a GPU's processes. If go-nvml has to do it, ok is false. The library is of the oldest kind, the list
// has outgrown the buffer, or the driver reports an error. An unchanged list is returned as the same slice: do not
// change it.
func (l *lists) compute(dev nvml.Device) (out []resident, ok bool) {
	if l.fn == nil {
		return nil, false
	}
	g, handle := l.gpu(dev)
	if g == nil {
		return nil, false
	}
	n := C.uint(len(g.room))
	r := nvml.Return(C.kerf_list(l.fn, handle, &n, &g.room[0]))
	switch {
	case r == nvml.ERROR_INSUFFICIENT_SIZE:
		g.room = make([]C.kerf_process, int(n)+spareRoom)
		return nil, false
	case r != nvml.SUCCESS || int(n) > len(g.room):
		_ = l.handles.judge(g.uuid, computeList, C.int(r)) // the next call looks up the handle again
		return nil, false
	}
	if g.last == nil || !slices.EqualFunc(g.last, g.room[:n],
		func(was resident, p C.kerf_process) bool { return was == processOf(p) }) {
		g.last = make([]resident, 0, n)
		for _, p := range g.room[:n] {
			g.last = append(g.last, processOf(p))
		}
	}
	return g.last, true
}

func processOf(p C.kerf_process) resident {
	return residentOf(uint32(p.pid), uint64(p.used), uint32(p.gi), uint32(p.ci))
}

// processTimes lists what a GPU's processes did since a moment, in microseconds; ok is false where go-nvml has to, as
// with compute.
func (l *lists) processTimes(dev nvml.Device, since uint64) (out []sharing.TimeRow, ok bool) {
	if l.times == nil {
		return nil, false
	}
	g, handle := l.gpu(dev)
	if g == nil {
		return nil, false
	}
	n := C.uint(len(g.times))
	r := nvml.Return(C.kerf_times(l.times, handle, &g.times[0], &n, C.ulonglong(since)))
	switch {
	case r == nvml.ERROR_NOT_FOUND:
		return nil, true // there is no row
	case r == nvml.ERROR_INSUFFICIENT_SIZE:
		g.times = make([]C.kerf_time, int(n)+spareRoom)
		return nil, false
	case r != nvml.SUCCESS || int(n) > len(g.times):
		_ = l.handles.judge(g.uuid, timesList, C.int(r)) // the next call looks up the handle again
		return nil, false
	}
	out = make([]sharing.TimeRow, 0, n)
	for _, s := range g.times[:n] {
		out = append(out, rowOf(uint32(s.pid), uint64(s.at), uint32(s.sm), uint32(s.memory), uint32(s.encoder),
			uint32(s.decoder)))
	}
	return out, true
}

// of is the cached state of a GPU; nil if its UUID is unknown.
func (l *lists) of(dev nvml.Device) *listed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gpus[dev]; g != nil {
		return g
	}
	uuid, r := dev.GetUUID()
	if r != nvml.SUCCESS {
		return nil
	}
	g := &listed{uuid: uuid, room: make([]C.kerf_process, spareRoom), times: make([]C.kerf_time, spareRoom)}
	l.gpus[dev] = g
	return g
}

// residentOf is one entry of a list, as the driver has it.
func residentOf(pid uint32, used uint64, gi, ci uint32) resident {
	r := resident{pid: int(pid), gi: gi, ci: ci, known: used != valueNotAvailable}
	if r.known {
		r.used = sharing.Bytes(used)
	}
	return r
}
