// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/model"
)

// MaxLine is the longest request in bytes.
const MaxLine = 64 << 10

// SocketPath returns where the daemon of a simulated node listens.
func SocketPath(dir string) string { return filepath.Join(dir, "control.sock") }

// Command is what a request asks for.
type Command string

// The commands.
const (
	CmdStatus    Command = "status"    // answers Status
	CmdProcesses Command = "processes" // answers []Process
	CmdLimits    Command = "limits"    // answers []Limit
	CmdSet       Command = "set"       // does Set, answers nothing
	CmdStop      Command = "stop"      // ends the daemon, answers nothing
)

// Request is one line to the daemon.
type Request struct {
	Command Command `json:"command"`
	// Set is given with CmdSet and with nothing else.
	Set *Set `json:"set,omitempty"`
}

// Set is a change to some or all GPUs.
type Set struct {
	All    bool         `json:"all,omitempty"`
	GPUs   []int        `json:"gpus,omitempty"` // when not All
	Change model.Change `json:"change"`
}

// Answer is one line from the daemon: an error or a result.
type Answer struct {
	Error  string          `json:"error,omitempty"`
	Kind   string          `json:"kind,omitempty"` // of the error
	Result json.RawMessage `json:"result,omitempty"`
}

// Status says what is simulated.
type Status struct {
	PID           int    `json:"pid"`
	Dir           string `json:"dir"`
	Machine       string `json:"machine"`
	Driver        string `json:"driver"`
	DriverVersion string `json:"driver_version"`
	Memacct       string `json:"memacct"`
	GPUs          []GPU  `json:"gpus"`
}

// GPU is one GPU's identity and state.
type GPU struct {
	Index         int           `json:"index"`
	Minor         int           `json:"minor"`
	UUID          string        `json:"uuid"`
	Model         string        `json:"model"`
	PCI           string        `json:"pci"`
	PCIDevice     uint64        `json:"pci_device"`    // as NVML has it: device, then vendor
	PCISubsystem  uint64        `json:"pci_subsystem"` // the same
	NUMA          int           `json:"numa"`          // -1: none
	MemoryBytes   sharing.Bytes `json:"memory_bytes"`
	ReservedBytes sharing.Bytes `json:"reserved_bytes"`
	UsedBytes     sharing.Bytes `json:"used_bytes"`
	// the most that programs, MPS servers aside, held since the start or peak=now
	PeakBytes      sharing.Bytes `json:"peak_bytes"`
	MIG            bool          `json:"mig"`
	Instances      []string      `json:"mig_instances"` // UUIDs
	Lost           bool          `json:"lost"`
	RecoveryAction string        `json:"recovery_action"`
	Utilization    int           `json:"utilization_percent"` // as an NVML call would return
	LatencyMS      float64       `json:"latency_ms"`
	TimeSlice      string        `json:"time_slice"`   // as nvidia-smi shows it
	ComputeMode    uint64        `json:"compute_mode"` // NVML_COMPUTEMODE_*
	PowerLimitMW   uint64        `json:"power_limit_mw"`
}

// Process is what a process holds on a GPU.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot; with PID it names the process for good
	Ended bool   `json:"ended"` // it has ended, and another process has its descriptors
	// absolute directory, of one that has ended the last; empty where there is none
	Cgroup      string        `json:"cgroup"`
	GPU         string        `json:"gpu"` // UUID
	GPUIndex    int           `json:"gpu_index"`
	GPUInstance *uint64       `json:"gpu_instance,omitempty"` // in MIG mode
	Bytes       sharing.Bytes `json:"bytes"`
}

// Limit is a memory limit on a cgroup.
type Limit struct {
	GPU       string         `json:"gpu"` // UUID
	GPUIndex  int            `json:"gpu_index"`
	Cgroup    string         `json:"cgroup"`
	SoftBytes sharing.Bytes  `json:"soft_bytes"`
	HardBytes *sharing.Bytes `json:"hard_bytes"` // null: none
	UsedBytes sharing.Bytes  `json:"used_bytes"`
}

// kinds are the sentinels that keep their kind over the socket.
func kinds() map[string]error {
	all := map[string]error{}
	for _, err := range []error{
		sharing.ErrNotFound, sharing.ErrConflict, sharing.ErrInvalid, sharing.ErrUnavailable, sharing.ErrDenied,
	} {
		all[err.Error()] = err
	}
	return all
}

// Refuse makes an answer of an error.
func Refuse(err error) Answer {
	a := Answer{Error: err.Error()}
	for name, kind := range kinds() {
		if errors.Is(err, kind) {
			a.Kind = name
		}
	}
	return a
}

// Err returns the error of an answer, nil when there is none.
func (a Answer) Err() error {
	if a.Error == "" {
		return nil
	}
	return &remoteError{text: a.Error, kind: kinds()[a.Kind]}
}

// remoteError has the daemon's words and its error's kind.
type remoteError struct {
	text string
	kind error // nil: none of the vocabulary
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }
