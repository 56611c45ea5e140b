// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Without has the backends that cannot enforce one request, or not on one GPU, although their probes succeed.
type Without map[sharing.Backend]Support

func (w Without) and(b sharing.Backend, s Support) Without {
	out := maps.Clone(w)
	if out == nil {
		out = Without{}
	}
	out[b] = s
	return out
}

func unsupported(reason, remedy string) Support {
	return Support{Answer: NotSupported, Reason: reason, Remedy: remedy}
}

// PodsByMPS is for containers of pods, where MPS can enforce none for the reason why; "" if it can. Each client needs
// the pipe directory and the /dev/shm of its daemon, and a container has a private /dev/shm.
func PodsByMPS(why string) Without {
	if why == "" {
		return nil
	}
	return Without{sharing.BackendMPS: unsupported(why,
		"run the agent as a service of the node (deploy/service/kerf-agent.service)")}
}

// ContainersByMPS is for containers that belong to no pod.
func ContainersByMPS() Without {
	return Without{sharing.BackendMPS: unsupported(
		"this version gives a container that is no pod's neither the pipe directory nor the /dev/shm of an MPS daemon",
		"")}
}

// Libkerf is for a process for which libkerf has another answer than its probe.
func Libkerf(s Support) Without { return Without{sharing.BackendLibkerf: s} }

// OnGPUs adds the backends that cannot enforce a request for so many GPUs.
func (w Without) OnGPUs(n int) Without {
	if n < 2 {
		return w
	}
	return w.and(sharing.BackendMPS, unsupported(fmt.Sprintf("a daemon of MPS serves one GPU, and %d are requested", n),
		"request one GPU"))
}

// Together adds the backends that cannot enforce one cap for several containers.
func (w Without) Together() Without {
	return w.and(sharing.BackendDriver, unsupported("its limit is that of one cgroup, and containers that share a "+
		"cap have one each; their pod's is kubelet's, and whether the driver adds up below it depends on the kernel",
		"")).
		and(sharing.BackendMPS, unsupported("its limit is that of each process, and it adds up over no two containers",
			""))
}

// Alongside adds the backends that cannot enforce a share of a GPU because of those that enforce others there. A GPU
// that runs MPS has no other shares. If a backend other than MPS enforces a share, others is true.
func (w Without) Alongside(mps, others bool) Without {
	switch {
	case mps:
		for _, b := range sharing.Backends() {
			if b != sharing.BackendMPS {
				w = w.and(b, unsupported("the GPU runs MPS for other grants", ""))
			}
		}
	case others:
		w = w.and(sharing.BackendMPS, unsupported("the GPU has grants that MPS does not hold", ""))
	}
	return w
}

// ReportOf is the report of a GPU on which MPS was not probed.
func ReportOf(driver, libkerf, reactive Support) Report {
	return Report{sharing.BackendDriver: driver, sharing.BackendLibkerf: libkerf, sharing.BackendReactive: reactive}
}

// SetMPS adds the answer of MPS.
func (r Report) SetMPS(s Support) { r[sharing.BackendMPS] = s }

// AskedMPS reports whether it has an answer of MPS.
func (r Report) AskedMPS() bool {
	_, asked := r[sharing.BackendMPS]
	return asked
}

// Limits reports whether the driver limits memory on the GPU.
func (r Report) Limits() bool { return r.Of(sharing.BackendDriver).OK() }

// Blind reports whether the driver certainly does not list the GPU's processes, so that the reactive backend sees none.
func (r Report) Blind() bool { return r[sharing.BackendReactive].Answer == NotSupported }

// Watched reports whether a list has the reactive backend.
func Watched(list []sharing.Backend) bool { return slices.Contains(list, sharing.BackendReactive) }

// OfLevel is the backend of a grant whose checkpoint names none: at that time, each level had one backend.
func OfLevel(l sharing.Level) sharing.Backend {
	switch l {
	case sharing.LevelDriver:
		return sharing.BackendDriver
	case sharing.LevelReactive:
		return sharing.BackendReactive
	default:
		return sharing.BackendNone
	}
}

// Recorded is the backend of that name in a checkpoint, where l is the grant's level.
func Recorded(name string, l sharing.Level) (sharing.Backend, error) {
	switch name {
	case "":
		return OfLevel(l), nil
	case sharing.BackendNone.String():
		return sharing.BackendNone, nil
	}
	return sharing.ParseBackend("record.backend", name)
}

// None reports whether no backend enforces.
func (c Choice) None() bool { return c.Backend == sharing.BackendNone }
