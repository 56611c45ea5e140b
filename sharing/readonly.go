// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// The values of kerf-agent's --gpu-settings.
const (
	// GPUSettingsManage: the agent changes GPU settings as the pool says.
	GPUSettingsManage = "manage"
	// GPUSettingsReadOnly: the agent changes no GPU setting.
	GPUSettingsReadOnly = "read-only"
	// GPUSettingsNames lists for people what the flag is about.
	GPUSettingsNames = "MIG mode, MIG instances, compute mode, time slice and power limit"
)

// ReadOnlyError rejects a change of a GPU's settings, because the admin runs Kerf with read-only GPU settings. It is
// ErrDenied. Memory limits of cgroups are no settings of a GPU.
type ReadOnlyError struct {
	// Change says what was rejected, as an infinitive: "set compute mode".
	Change string
}

// ReadOnlySettings says, for people, why a change is rejected, and which flag decides it.
const ReadOnlySettings = "GPU settings are read-only here (--gpu-settings=read-only)"

// Error names the change, the reason and the flag.
func (e *ReadOnlyError) Error() string { return e.Change + ": " + ReadOnlySettings }

// Unwrap returns ErrDenied.
func (*ReadOnlyError) Unwrap() error { return ErrDenied }
