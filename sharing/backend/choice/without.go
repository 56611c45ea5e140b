// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Without has the backends that cannot enforce one request, or not on one GPU, although their probes succeed.
type Without map[config.Backend]Support

func (w Without) and(b config.Backend, s Support) Without {
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

// PodsByMPS is for containers of pods, where MPS can enforce none for the reason why; "" if it can. Each client needs the
// /dev/shm of its daemon beside the pipe directory, and a container has a /dev/shm of its own.
func PodsByMPS(why string) Without {
	if why == "" {
		return nil
	}
	return Without{config.BackendMPS: unsupported(why, "run the agent as a service of the node (deploy/service/kerf-agent.service)")}
}

// ContainersByMPS is for containers that belong to no pod.
func ContainersByMPS() Without {
	return Without{config.BackendMPS: unsupported("this version gives a container that is no pod's neither the pipe directory nor the /dev/shm of an MPS daemon", "")}
}

// Libkerf is for a process for which libkerf has another answer than its probe.
func Libkerf(s Support) Without { return Without{config.BackendLibkerf: s} }

// OnGPUs adds the backends that cannot enforce a request for so many GPUs.
func (w Without) OnGPUs(n int) Without {
	if n < 2 {
		return w
	}
	return w.and(config.BackendMPS, unsupported(fmt.Sprintf("a daemon of MPS serves one GPU, and %d are asked for", n), "ask for one GPU"))
}

// Together adds the backends that cannot enforce one cap for several containers.
func (w Without) Together() Without {
	return w.and(config.BackendDriver, unsupported("its limit is that of one cgroup, and containers that share a cap have one each; their pod's is kubelet's, and whether the driver adds up below it depends on the kernel", "")).
		and(config.BackendMPS, unsupported("its limit is that of each process, and it adds up over no two containers", ""))
}

// Beside adds the backends that cannot enforce a share of a GPU because of those that enforce others there: a GPU that
// runs MPS has no other shares. others is true if a backend other than MPS enforces one.
func (w Without) Beside(mps, others bool) Without {
	switch {
	case mps:
		for _, b := range config.Backends() {
			if b != config.BackendMPS {
				w = w.and(b, unsupported("the GPU runs MPS for other grants", ""))
			}
		}
	case others:
		w = w.and(config.BackendMPS, unsupported("the GPU has grants that MPS does not hold", ""))
	}
	return w
}

// ReportOf is the report of a GPU on which MPS was not probed.
func ReportOf(driver, libkerf, reactive Support) Report {
	return Report{config.BackendDriver: driver, config.BackendLibkerf: libkerf, config.BackendReactive: reactive}
}

// SetMPS adds the answer of MPS.
func (r Report) SetMPS(s Support) { r[config.BackendMPS] = s }

// AskedMPS reports whether it has an answer of MPS.
func (r Report) AskedMPS() bool {
	_, asked := r[config.BackendMPS]
	return asked
}

// Limits reports whether the driver limits memory on the GPU.
func (r Report) Limits() bool { return r.Of(config.BackendDriver).OK() }

// Blind reports whether the driver certainly does not list the GPU's processes, so that the reactive backend sees none.
func (r Report) Blind() bool { return r[config.BackendReactive].Answer == NotSupported }

// Watched reports whether a list has the reactive backend.
func Watched(list []config.Backend) bool { return slices.Contains(list, config.BackendReactive) }

// OfLevel is the backend of a grant whose checkpoint names none: at that time, each level had one backend.
func OfLevel(l sharing.Level) config.Backend {
	switch l {
	case sharing.LevelDriver:
		return config.BackendDriver
	case sharing.LevelReactive:
		return config.BackendReactive
	default:
		return config.BackendNone
	}
}

// Recorded is the backend of that name in a checkpoint, where l is the grant's level.
func Recorded(name string, l sharing.Level) (config.Backend, error) {
	switch name {
	case "":
		return OfLevel(l), nil
	case config.BackendNone.String():
		return config.BackendNone, nil
	}
	return config.ParseBackend("record.backend", name)
}

// None reports whether no backend enforces.
func (c Choice) None() bool { return c.Backend == config.BackendNone }
