// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import "github.com/kerf-gpu/kerf/sharing"

// gpuSettings says whether the agent changes GPU settings, and what is off where it does not.
func (f Facts) gpuSettings() Check {
	c := Check{Name: "GPU settings"}
	switch f.Agent.GPUSettings {
	case sharing.GPUSettingsManage:
		c.Status, c.Seen, c.Means = OK, "managed by the agent", "the agent sets "+sharing.GPUSettingsNames+" as the pool says"
	case sharing.GPUSettingsReadOnly:
		c.Status, c.Seen = Warn, "read-only (kerf-agent --gpu-settings=read-only)"
		c.Means = "the agent enforces memory limits; it does not change " + sharing.GPUSettingsNames
		c.Mend = "nothing, if another tool sets them; else start the agent with --gpu-settings=manage"
	default:
		c.Status, c.Seen, c.Means = Unknown, "no agent says whether it changes them", "see agent"
	}
	return c
}
