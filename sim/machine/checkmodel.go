// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Bounds of a model's numbers: past any real part, and small enough that no sum of them wraps.
const (
	maxMiB    = 16 << 20 // 16 TiB
	maxName   = 95       // NVML's buffer for a name, less its end
	maxSlices = 32
	// maxDevices is how many ids of GPU instances a driver has capability numbers for, but for 0.
	maxDevices = 14
	// nvmlProfiles is NVML_GPU_INSTANCE_PROFILE_COUNT.
	nvmlProfiles = 0x12
	maxCostMS    = 60_000
	maxCostUS    = 1_000_000
	maxCostKiB   = 1 << 20

	assumedSliceUS, assumedSwitchUS, assumedPreemptUS = 2000, 130, 70
)

// architectures are NVML_DEVICE_ARCH_* by the names that a machine file uses.
func architectures() map[string]uint64 {
	return map[string]uint64{
		"kepler": 2, "maxwell": 3, "pascal": 4, "volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9,
		"blackwell": 10,
	}
}

// brands are NVML_BRAND_* by the names that a machine file uses.
func brands() map[string]uint64 {
	return map[string]uint64{"quadro": 1, "tesla": 2, "geforce": 5, "titan": 6, "quadro-rtx": 12, "nvidia-rtx": 13,
		"nvidia": 14}
}

func mib(n int) sharing.Bytes {
	return sharing.Bytes(max(n, 0)) * sharing.MiB // #nosec G115 -- not negative, and checked to be at most 2^24
}

func count(n int) uint64 {
	return uint64(max(n, 0)) // #nosec G115 -- not negative
}

// addModels checks models and makes them known; a file's own replace the built-in ones of the same name.
func (c *checker) addModels(docs map[string]modelDoc) {
	for _, key := range slices.Sorted(maps.Keys(docs)) {
		c.models[key] = c.model("models."+key, docs[key])
	}
}

func (c *checker) model(field string, doc modelDoc) Model {
	m := Model{
		Name: doc.Name, Memory: mib(doc.MemoryMiB), Reserved: mib(doc.ReservedMiB), Context: mib(doc.ContextMiB),
		BAR1:         mib(doc.BAR1MiB),
		SystemMemory: doc.SystemMemory,
		PowerLimit:   count(doc.PowerLimitW) * 1000, SMClock: count(doc.SMClockMHz),
		MemoryClock: count(doc.MemoryClockMHz),
		SMs:         count(doc.SMs), ThreadsPerSM: count(doc.MaxThreadsPerSM),
		PCIDevice: uint64(doc.PCIDeviceID), PCISubsys: uint64(doc.PCISubsystemID), NVLinks: doc.NVLinks,
		Architecture: c.choice(field+".architecture", doc.Architecture, architectures()),
		Brand:        c.choice(field+".brand", doc.Brand, brands()),
	}
	if doc.Name == "" || len(doc.Name) > maxName ||
		strings.ContainsFunc(doc.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
		c.bad(field+".name", doc.Name, fmt.Sprintf("write the product's name in 1 to %d ASCII characters", maxName),
			"is not a product's name")
	}
	if cc := regexp.MustCompile(`^([1-9][0-9]?)\.([0-9])$`).FindStringSubmatch(doc.ComputeCapability); cc != nil {
		major, _ := strconv.Atoi(cc[1]) // digits only
		minor, _ := strconv.Atoi(cc[2])
		m.CCMajor, m.CCMinor = count(major), count(minor)
	} else {
		c.bad(field+".compute_capability", doc.ComputeCapability, `write major.minor in quotes, such as "9.0"`,
			"is not a compute capability")
	}
	c.number(field+".memory_mib", doc.MemoryMiB, 1, maxMiB)
	c.number(field+".reserved_mib", doc.ReservedMiB, 0, max(0, doc.MemoryMiB-1))
	c.number(field+".context_mib", doc.ContextMiB, 0, max(0, doc.MemoryMiB-doc.ReservedMiB))
	c.number(field+".bar1_mib", doc.BAR1MiB, 0, maxMiB)
	if doc.SystemMemory && (doc.ReservedMiB > 0 || doc.BAR1MiB > 0 || doc.MIG != nil) {
		c.bad(field+".system_memory", "true", "leave out reserved_mib, bar1_mib and mig",
			"does not go with them: no such GPU is known")
	}
	c.number(field+".power_limit_w", doc.PowerLimitW, 0, 10000)
	c.number(field+".sm_clock_mhz", doc.SMClockMHz, 0, 100000)
	c.number(field+".memory_clock_mhz", doc.MemoryClockMHz, 0, 100000)
	c.number(field+".sms", doc.SMs, 1, 4096)
	c.number(field+".max_threads_per_sm", doc.MaxThreadsPerSM, 32, 4096)
	c.number(field+".nvlinks", doc.NVLinks, 0, 64)
	m.Costs = c.costs(field+".costs", doc.Costs)
	if doc.MIG != nil {
		c.mig(field+".mig", &m, *doc.MIG)
	}
	return m
}

// costs checks what a driver takes for itself: at most a minute, and a GiB.
func (c *checker) costs(field string, doc costsDoc) Costs {
	for _, v := range []struct {
		name    string
		n, most int
	}{
		{"context_ms", doc.ContextMS, maxCostMS}, {"list_ms", doc.ListMS, maxCostMS},
		{"exit_ms", doc.ExitMS, maxCostMS},
		{"stream_kib", doc.StreamKiB, maxCostKiB}, {"unlisted_kib", doc.UnlistedKiB, maxCostKiB},
		{"slice_us", doc.SliceUS, maxCostUS}, {"switch_us", doc.SwitchUS, maxCostUS},
		{"preempt_us", doc.PreemptUS, maxCostUS},
	} {
		c.number(field+"."+v.name, v.n, 0, v.most)
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	if doc.SliceUS == 0 { // not measured: assumed to be as on the H200
		doc.SliceUS, doc.SwitchUS, doc.PreemptUS = assumedSliceUS, assumedSwitchUS, assumedPreemptUS
	}
	kib := func(n int) sharing.Bytes { return sharing.Bytes(max(n, 0)) * sharing.KiB } // #nosec G115 -- not negative
	return Costs{ContextTime: ms(doc.ContextMS), ListTime: ms(doc.ListMS), ExitTime: ms(doc.ExitMS),
		Stream: kib(doc.StreamKiB), Unlisted: kib(doc.UnlistedKiB),
		Slice: us(doc.SliceUS), Switch: us(doc.SwitchUS), Preempt: us(doc.PreemptUS)}
}

func (c *checker) choice(field, name string, of map[string]uint64) uint64 {
	v, known := of[name]
	if !known {
		c.bad(field, name, "write one of "+strings.Join(slices.Sorted(maps.Keys(of)), ", "), "is not known")
	}
	return v
}

func (c *checker) mig(field string, m *Model, doc modelMIGDoc) {
	c.number(field+".max_devices", doc.MaxDevices, 1, maxDevices)
	c.number(field+".compute_slices", doc.ComputeSlices, 1, maxSlices)
	c.number(field+".memory_slices", doc.MemorySlices, 1, maxSlices)
	m.MaxMIG, m.ComputeSlices, m.MemorySlices = doc.MaxDevices, doc.ComputeSlices, doc.MemorySlices
	if len(doc.Profiles) == 0 {
		c.bad(field+".profiles", "", "list the profiles of this model", "is empty")
	}
	for i, p := range doc.Profiles {
		c.profile(fmt.Sprintf("%s.profiles[%d]", field, i), m, p)
	}
}

func (c *checker) profile(field string, m *Model, doc profileDoc) {
	if !regexp.MustCompile(`^[0-9]+g\.[0-9]+gb([+-][a-z.]+)?$`).MatchString(doc.Name) {
		c.bad(field+".name", doc.Name, "write slices and memory, such as 1g.10gb or 1g.10gb+me",
			"is not a profile's name")
	}
	c.number(field+".index", doc.Index, 0, nvmlProfiles-1)
	c.number(field+".id", doc.ID, 0, 255)
	for _, other := range m.Profiles {
		if other.Name == doc.Name || other.Index == count(doc.Index) || other.ID == count(doc.ID) {
			c.bad(field, doc.Name, "give each profile its own name, index and id", "is like profile %s", other.Name)
		}
	}
	c.number(field+".slices", doc.Slices, 1, m.ComputeSlices)
	c.number(field+".memory_mib", doc.MemoryMiB, 1, int(m.Memory/sharing.MiB)) // #nosec G115 -- at most 2^24
	c.number(field+".sms", doc.SMs, 1, int(m.SMs))                             // #nosec G115 -- at most 4096
	c.number(field+".size", doc.Size, 1, m.MemorySlices)
	c.number(field+".max", doc.Max, 1, maxSlices)
	if len(doc.Starts) == 0 || len(doc.Starts) > maxSlices {
		c.bad(field+".starts", "", "list the memory slices at which the profile may begin", "has %d places",
			len(doc.Starts))
	}
	for i, s := range doc.Starts {
		c.number(fmt.Sprintf("%s.starts[%d]", field, i), s, 0, max(0, m.MemorySlices-doc.Size))
		if i > 0 && s <= doc.Starts[i-1] {
			c.bad(field+".starts", strconv.Itoa(s), "list the places in ascending order",
				"is not above the place before it")
		}
	}
	for _, e := range []struct {
		name string
		n    int
	}{
		{"copy_engines", doc.CopyEngines}, {"decoders", doc.Decoders}, {"encoders", doc.Encoders},
		{"jpegs", doc.JPEGs}, {"ofas", doc.OFAs},
	} {
		c.number(field+"."+e.name, e.n, 0, 255)
	}
	m.Profiles = append(m.Profiles, Profile{
		Name: doc.Name, Index: count(doc.Index), ID: count(doc.ID), Slices: doc.Slices, Memory: mib(doc.MemoryMiB),
		SMs: count(doc.SMs), Size: doc.Size, Starts: doc.Starts, Max: doc.Max, CopyEngines: count(doc.CopyEngines),
		Decoders: count(doc.Decoders), Encoders: count(doc.Encoders), JPEGs: count(doc.JPEGs), OFAs: count(doc.OFAs),
	})
}
