// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

// The fields of the pools that the steps' agents run with.
const (
	capsPool     = "backends: [driver, libkerf]"
	crashPool    = "backends: [driver, libkerf, reactive]"
	reactivePool = "backends: [driver, reactive], onOverCap: kill"
)

// sharesPool enforces compute percents by a policy and, next to the driver, a backend.
func sharesPool(backend, policy string) string {
	list := "driver"
	if backend != "driver" {
		list += ", " + backend
	}
	return "backends: [" + list + "], computePolicy: " + policy
}
