// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

// clearLimitEnv empties the variables by which NVIDIA's limit hook would replace the cap. That hook fails on an empty
// value, so a container whose spec still has it does not start. NRI 0.12.5 passes no removal of a variable on to the
// runtime, so the variable cannot be taken away (TestRemovedVariablesStay).
//
// A variable that the container has twice is rejected: the runtime replaces the first value and then lets the second
// one win.
func clearLimitEnv(a *api.ContainerAdjustment, c *api.Container) error {
	for _, name := range sharing.NVIDIALimitEnv() {
		times := 0
		for _, e := range c.GetEnv() {
			if key, _, _ := strings.Cut(e, "="); key == name {
				times++
			}
		}
		switch {
		case times == 1:
			setEnv(a, name, "")
		case times > 1:
			return fmt.Errorf("container %q: %w", c.GetName(), sharing.Invalid("environment variable", name,
				"leave it out of the pod", "is set by the image and again by the pod; Kerf sets the container's GPU memory limit"))
		}
	}
	return nil
}
