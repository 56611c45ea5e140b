// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"regexp"
	"strings"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// Probe finds out whether libkerf works on this machine.
type Probe struct {
	// Library is libkerf.so, empty where there is none, and Missing says why then.
	Library, Missing string
	// Dir is the folder of the grants' regions; it is made when it is not there.
	Dir string
	// Drivers are the files that may be the driver's libcuda.so.1, in the order in which they are looked for.
	Drivers []string
}

// Of reports whether the library can enforce shares of the GPU. Programs can map it, regions can be made, and the
// driver has no allocating entry point that the library's table does not know. No code of the driver runs. The reason
// of a yes names other unknown names.
func (l Probe) Of(gpu sharing.GPU) backend.Support {
	if gpu.MIG {
		return backend.Support{Answer: backend.NotSupported, Reason: "no share is given of a GPU in MIG mode",
			Remedy: "turn MIG mode off"}
	}
	if l.Library == "" {
		return backend.Support{Answer: backend.NotSupported, Reason: l.Missing,
			Remedy: "put libkerf.so next to kerf-agent, or name its path with --library"}
	}
	if err := libkerf.CheckFile(l.Library); err != nil {
		return backend.Support{Answer: backend.NotSupported, Reason: err.Error(),
			Remedy: "install libkerf.so as root's, on a file system from which programs may run"}
	}
	if err := libkerf.TryFolder(l.Dir); err != nil {
		return backend.Support{Answer: backend.NotSupported, Reason: "the folders of grants cannot be made: " +
			err.Error(),
			Remedy: "give the agent CAP_SYS_ADMIN and CAP_SYS_CHROOT, and its directory mountPropagation " +
				"HostToContainer"}
	}
	names, err := libkerf.DriverNames(l.Drivers)
	if err != nil {
		return backend.Support{Answer: backend.NoAnswer, Reason: "the driver's entry points could not be read: " +
			err.Error(), Remedy: "let the agent see libcuda.so.1 (driver capability compute)"}
	}
	table, err := libkerf.Families()
	if err != nil {
		return backend.Support{Answer: backend.NotSupported, Reason: err.Error()}
	}
	return judge(table, names)
}

// judge fails closed on what allocates, as far as a name tells.
func judge(table libkerf.Table, names []string) backend.Support {
	var charges, others []string
	for _, n := range table.Unknown(names) {
		if charging(table, n) {
			charges = append(charges, n)
		} else {
			others = append(others, n)
		}
	}
	switch {
	case len(charges) > 0:
		return backend.Support{Answer: backend.NotSupported,
			Reason: "this driver can allocate by entry points that libkerf does not know: " +
				strings.Join(charges, ", "), Remedy: "use a newer Kerf, or another backend"}
	case len(others) > 0:
		return backend.Support{Answer: backend.Supported,
			Reason: "this driver has entry points that libkerf does not know and takes to allocate nothing: " +
				strings.Join(others, ", ")}
	}
	return backend.Support{Answer: backend.Supported}
}

// charging reports whether the unknown name may allocate: it is another form of one that does, or it has no known
// form and says so.
func charging(table libkerf.Table, name string) bool {
	base := name
	for {
		if class, known := table.Class(base); known {
			return class == libkerf.Charge
		}
		shorter := regexp.MustCompile(`_(ptsz|ptds|v[0-9]+)$`).ReplaceAllString(base, "")
		if shorter == base {
			return regexp.MustCompile(`Alloc|Create|Import|AddNode|AddMem|Restore`).MatchString(name)
		}
		base = shorter
	}
}
