// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

/*
#include <stdint.h>

// nvmlProcessInfo_v2_t, which the second and the third version of the lists have.
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } kerf_process;
_Static_assert(sizeof(void *) != 8 || sizeof(kerf_process) == 24, "layout of nvmlProcessInfo_v2_t");

typedef int (*kerf_list_fn)(void *, unsigned *, kerf_process *);

static int kerf_list(void *list_fn, void *dev, unsigned *count, kerf_process *out)
{
	return ((kerf_list_fn)list_fn)(dev, count, out);
}
*/
import "C"

import (
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// computeList is the function that lists compute processes. go-nvml asks each time how long the list is before it asks for the
// list, and the driver goes through all processes twice; lists asks once, with room for as many as there were.
const computeList = "nvmlDeviceGetComputeRunningProcesses"

// spareRoom is how many more processes there may be at the next look.
const spareRoom = 32

// lists asks for lists of compute processes.
type lists struct {
	limits *limits // has the handles
	fn     unsafe.Pointer

	mu   sync.Mutex
	gpus map[nvml.Device]*listed
}

// listed is what is kept of a GPU's list. One call at a time uses it: a GPU's calls are in one lane.
type listed struct {
	uuid string
	room []C.kerf_process
}

func openLists(l *limits) *lists {
	fn := dlsym(l.lib, computeList+"_v3")
	if fn == nil {
		fn = dlsym(l.lib, computeList+"_v2")
	}
	return &lists{limits: l, fn: fn, gpus: map[nvml.Device]*listed{}}
}

// compute lists a GPU's processes; ok is false where go-nvml has to: the library is of the oldest kind, the list has become
// longer than the room, or the driver has an error to tell.
func (l *lists) compute(dev nvml.Device) (out []resident, ok bool) {
	if l.fn == nil || l.limits.handle == nil {
		return nil, false
	}
	g := l.of(dev)
	if g == nil {
		return nil, false
	}
	handle, err := l.limits.device(g.uuid)
	if err != nil {
		return nil, false
	}
	n := C.uint(len(g.room))
	r := nvml.Return(C.kerf_list(l.fn, handle, &n, &g.room[0]))
	switch {
	case r == nvml.ERROR_INSUFFICIENT_SIZE:
		g.room = make([]C.kerf_process, int(n)+spareRoom)
		return nil, false
	case r != nvml.SUCCESS || int(n) > len(g.room):
		_ = l.limits.judge(g.uuid, computeList, C.int(r)) // the next call looks the handle up anew
		return nil, false
	}
	out = make([]resident, 0, n)
	for _, p := range g.room[:n] {
		out = append(out, residentOf(uint32(p.pid), uint64(p.used), uint32(p.gi), uint32(p.ci)))
	}
	return out, true
}

// of is what is kept of a GPU; nil when not even its UUID can be told.
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
	g := &listed{uuid: uuid, room: make([]C.kerf_process, spareRoom)}
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
