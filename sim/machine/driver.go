// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Driver is a driver version that can be simulated.
type Driver struct {
	Name    string // as --driver takes it, and the name of its libraries' folder
	Version string
	NVML    string // NVML's own version
	Major   uint64
	CUDA    uint64 // 13040 is CUDA 13.4
	// MemoryLimits is true when the driver has limits on cgroups.
	MemoryLimits bool
}

// Drivers returns the catalogue, oldest first.
func Drivers() []Driver {
	return []Driver{
		{Name: "r550", Version: "550.163.01", NVML: "12.550.163.01", Major: 550, CUDA: 12040},
		{Name: "r580", Version: "580.95.05", NVML: "13.580.95.05", Major: 580, CUDA: 13000},
		{Name: "r615", Version: "615.71.09", NVML: "13.615.71.09", Major: 615, CUDA: 13040, MemoryLimits: true},
	}
}

// FindDriver returns the driver of that name, or a sharing.FieldError that lists those that there are.
func FindDriver(name string) (Driver, error) {
	var names []string
	for _, d := range Drivers() {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return Driver{}, sharing.Invalid("--driver", name, "write one of "+strings.Join(names, ", "),
		"is not a driver that can be simulated")
}
