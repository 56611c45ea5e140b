// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// Snapshot is one cycle's result. It is never changed after it was published.
type Snapshot struct {
	// Seq counts cycles from 1; 0 means that there is none yet.
	Seq uint64
	// At is when the cycle began, and Took how long it lasted.
	At   time.Time
	Took time.Duration
	// Source names where the values come from, and Driver is its version.
	Source, Driver string
	// Agent is true if the agent answers. If false, Grants are the last known ones.
	Agent  bool
	Grants map[string]Grant
	GPUs   []GPU
}

// GPU is one GPU in a snapshot.
type GPU struct {
	Info Info
	// Err is why the GPU did not answer; nothing else but Info is then there.
	Err error
	// Fields are the GPU's values.
	Fields map[Field]float64
	Device attribution.Device
	Use    attribution.Sample
	// Totals has each place of Use.
	Totals map[attribution.Place]attribution.Total
}

// Info is a GPU's identity.
type Info struct {
	UUID  sharing.GPUID
	Index int
	Minor int
	Model string
	PCI   string
}

// Reading is what a source tells of one GPU in one cycle.
type Reading struct {
	Info   Info
	Fields map[Field]float64
	// Device is without its processes' cgroups and without energy, which the collector adds. Its processes are never
	// changed; they may be the very slice of the reading before when they are as they were.
	Device attribution.Device
	Err    error
}

// Grant is what the agent tells of one grant.
type Grant struct {
	// ID is the agent's id, and Name what people call it: its name, or the id.
	ID, Name string
	// Namespace, Pod, PodUID and Container are empty for a grant that is no pod's.
	Namespace, Pod, PodUID, Container string
	Profile, Level                    string
	// Claims are the requests of ResourceClaims that it comes from, as CLAIM/REQUEST; empty for a grant by limits.
	Claims     []string
	Attachment attribution.Attachment
	// Caps are by the order of Attachment.Shares.
	Caps []Cap
}

// Cap is what a grant may use of one GPU.
type Cap struct {
	// Memory is guaranteed, and Burst is burst memory.
	Memory, Burst sharing.Bytes
	// Percent is the share of compute; 0 is a fair share.
	Percent sharing.Percent
	// Throttled is how long its launches have waited for that share, summed over threads, since the grant began; only
	// when Timed. The agent tells it with its grants, every some seconds.
	Throttled time.Duration
	Timed     bool
	Events    CapEvents
}

// CapEvents are the events at a cap, as the agent reports them. Uncounted ones are unknown.
type CapEvents struct {
	// Refused is how many calls of the grant's programs were refused because the cap left no room; only when Counted,
	// by the programs.
	Refused uint64
	Counted bool
	// Violations is how many times the grant was found over its cap since the agent started. Delay is the longest time
	// that it had been so, the last time. Both need Watched, by the agent.
	Violations uint64
	Delay      time.Duration
	Watched    bool
}

// CapOn returns the cap of a grant's share.
func (g Grant) CapOn(gpu sharing.GPURef) (Cap, bool) {
	for i, f := range g.Attachment.Shares {
		if f.GPU == gpu && i < len(g.Caps) {
			return g.Caps[i], true
		}
	}
	return Cap{}, false
}

// Whole returns the grant that has the whole GPU, if one has.
func (s *Snapshot) Whole(id sharing.GPUID) (Grant, bool) {
	for _, g := range s.Grants {
		for _, f := range g.Attachment.Shares {
			if f.GPU.UUID == id && f.Whole {
				return g, true
			}
		}
	}
	return Grant{}, false
}

// Field is a GPU value by DCGM's number, in DCGM's units, from any source.
type Field uint16

// The fields, with their units.
const (
	FieldSMClock             Field = 100  // MHz
	FieldMemoryClock         Field = 101  // MHz
	FieldThrottle            Field = 112  // bits: why the clocks are lower than they could be
	FieldMemoryTemperature   Field = 140  // degrees Celsius
	FieldTemperature         Field = 150  // degrees Celsius
	FieldPower               Field = 155  // watts
	FieldEnergy              Field = 156  // millijoules since the driver was loaded
	FieldPowerLimit          Field = 164  // watts, enforced
	FieldPCIeReplays         Field = 202  // since the driver was loaded
	FieldBusy                Field = 203  // percent of the time in which a kernel ran
	FieldMemoryBusy          Field = 204  // percent of the time in which memory was accessed
	FieldEncoder             Field = 206  // percent
	FieldDecoder             Field = 207  // percent
	FieldXID                 Field = 230  // the last XID
	FieldMemoryTotal         Field = 250  // MiB
	FieldMemoryFree          Field = 251  // MiB
	FieldMemoryUsed          Field = 252  // MiB
	FieldMemoryReserved      Field = 253  // MiB
	FieldECCCorrected        Field = 310  // errors since the driver was loaded
	FieldECCUncorrected      Field = 311  // errors since the driver was loaded
	FieldRetiredSingle       Field = 390  // pages
	FieldRetiredDouble       Field = 391  // pages
	FieldRetiredPending      Field = 392  // pages
	FieldRemappedUncorrected Field = 393  // rows
	FieldRemappedCorrected   Field = 394  // rows
	FieldRemapFailed         Field = 395  // 1: a row could not be remapped
	FieldNVLinkBandwidth     Field = 449  // all links, as DCGM counts it
	FieldProfGREngine        Field = 1001 // part of the time in which graphics or compute ran
	FieldProfSMActive        Field = 1002 // part of the time, mean over the multiprocessors
	FieldProfSMOccupancy     Field = 1003 // part of the most warps that could have been resident
	FieldProfTensor          Field = 1004 // part of the time in which the tensor pipe was active
	FieldProfDRAM            Field = 1005 // part of the time in which device memory was accessed
	FieldProfPCIeSent        Field = 1009 // bytes a second, headers and data
	FieldProfPCIeReceived    Field = 1010 // bytes a second, headers and data
)

// Kind is what a value is.
type Kind uint8

// The kinds.
const (
	Gauge Kind = iota
	Counter
)

// FieldInfo describes a field as dcgm-exporter exposes it.
type FieldInfo struct {
	Field Field
	Name  string
	Kind  Kind
	Help  string
}

// Fields are all fields that a source may tell, by number.
func Fields() []FieldInfo {
	return []FieldInfo{
		{FieldSMClock, "DCGM_FI_DEV_SM_CLOCK", Gauge, "SM clock frequency (in MHz)."},
		{FieldMemoryClock, "DCGM_FI_DEV_MEM_CLOCK", Gauge, "Memory clock frequency (in MHz)."},
		{FieldThrottle, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Gauge,
			"Why the clocks are lower than they could be (bits)."},
		{FieldMemoryTemperature, "DCGM_FI_DEV_MEMORY_TEMP", Gauge, "Memory temperature (in C)."},
		{FieldTemperature, "DCGM_FI_DEV_GPU_TEMP", Gauge, "GPU temperature (in C)."},
		{FieldPower, "DCGM_FI_DEV_POWER_USAGE", Gauge, "Power draw (in W)."},
		{FieldEnergy, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Counter, "Energy since the driver was loaded (in mJ)."},
		{FieldPowerLimit, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", Gauge, "Enforced power limit (in W)."},
		{FieldPCIeReplays, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", Counter, "PCIe retries since the driver was loaded."},
		{FieldBusy, "DCGM_FI_DEV_GPU_UTIL", Gauge, "Time in which a kernel ran (in %)."},
		{FieldMemoryBusy, "DCGM_FI_DEV_MEM_COPY_UTIL", Gauge, "Time in which device memory was accessed (in %)."},
		{FieldEncoder, "DCGM_FI_DEV_ENC_UTIL", Gauge, "Encoder utilization (in %)."},
		{FieldDecoder, "DCGM_FI_DEV_DEC_UTIL", Gauge, "Decoder utilization (in %)."},
		{FieldXID, "DCGM_FI_DEV_XID_ERRORS", Gauge, "The last XID."},
		{FieldMemoryTotal, "DCGM_FI_DEV_FB_TOTAL", Gauge, "Device memory in all (in MiB)."},
		{FieldMemoryFree, "DCGM_FI_DEV_FB_FREE", Gauge, "Device memory free (in MiB)."},
		{FieldMemoryUsed, "DCGM_FI_DEV_FB_USED", Gauge, "Device memory used (in MiB)."},
		{FieldMemoryReserved, "DCGM_FI_DEV_FB_RESERVED", Gauge, "Device memory reserved by the driver (in MiB)."},
		{FieldECCCorrected, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", Counter,
			"ECC errors corrected since the driver was loaded."},
		{FieldECCUncorrected, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Counter,
			"ECC errors not corrected since the driver was loaded."},
		{FieldRetiredSingle, "DCGM_FI_DEV_RETIRED_SBE", Counter, "Pages retired for single-bit errors."},
		{FieldRetiredDouble, "DCGM_FI_DEV_RETIRED_DBE", Counter, "Pages retired for double-bit errors."},
		{FieldRetiredPending, "DCGM_FI_DEV_RETIRED_PENDING", Gauge, "Pages that wait to be retired."},
		{FieldRemappedUncorrected, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", Counter,
			"Rows remapped for uncorrectable errors."},
		{FieldRemappedCorrected, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", Counter,
			"Rows remapped for correctable errors."},
		{FieldRemapFailed, "DCGM_FI_DEV_ROW_REMAP_FAILURE", Gauge, "1 when a row could not be remapped."},
		{FieldNVLinkBandwidth, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", Counter, "Bandwidth counter of all NVLinks."},
		{FieldProfGREngine, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", Gauge,
			"Part of the time in which graphics or compute ran."},
		{FieldProfSMActive, "DCGM_FI_PROF_SM_ACTIVE", Gauge,
			"Part of the time in which a warp was on a multiprocessor, mean over them."},
		{FieldProfSMOccupancy, "DCGM_FI_PROF_SM_OCCUPANCY", Gauge,
			"Part of the most warps that could have been resident."},
		{FieldProfTensor, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Gauge,
			"Part of the time in which the tensor pipe was active."},
		{FieldProfDRAM, "DCGM_FI_PROF_DRAM_ACTIVE", Gauge, "Part of the time in which device memory was accessed."},
		{FieldProfPCIeSent, "DCGM_FI_PROF_PCIE_TX_BYTES", Gauge,
			"Sent over PCIe, headers and data (in bytes a second)."},
		{FieldProfPCIeReceived, "DCGM_FI_PROF_PCIE_RX_BYTES", Gauge,
			"Received over PCIe, headers and data (in bytes a second)."},
	}
}
