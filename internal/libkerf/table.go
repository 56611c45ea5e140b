// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kerf-gpu/kerf/sharing"
)

//go:embed lib/families.def
var families string

// Table says of each known entry point what it means. It does not change; copies share it.
type Table struct {
	class  map[string]Class
	family *regexp.Regexp
}

// familyNames matches the names of functions that allocate device memory or take the GPU's time. Its patterns also
// match those of a later driver.
const familyNames = `^cu(Mem[A-Z]|Array|MipmappedArray|DeviceTotalMem|Device.*(MemPool|GraphMem)|` +
	`Graph(AddMem(Alloc|Free)|AddNode|Mem(Alloc|Free)|Instantiate|Launch|Upload)|Graphics|GL|VDPAU|EGL|Import|External|` +
	`DestroyExternalMemory|Ipc.*Mem|Multicast|Ctx(Create|Attach|Detach|Destroy|SetLimit|FromGreen)|GreenCtx|` +
	`Memcpy|Memset|Launch|Stream(WaitValue|WriteValue|BatchMemOp)|DevicePrimaryCtx|Module(Load|Unload)|Library(Load|Unload)|LinkComplete|CheckpointProcess|GetProcAddress|GetExportTable)`

// Families is the table that comes with this program. An error wraps sharing.ErrInvalid and means that the
// program was built from a spoilt file.
func Families() (Table, error) { return parse(families) }

// parse reads lines "FAMILY(name, class)"; comments as C has them stand in lines of their own.
func parse(text string) (Table, error) {
	line := regexp.MustCompile(`^FAMILY\((cu[A-Za-z0-9_]+), ([a-z]+)\)$`)
	t := Table{class: map[string]Class{}, family: regexp.MustCompile(familyNames)}
	for i, s := range strings.Split(text, "\n") {
		if s == "" || strings.HasPrefix(s, "/*") || strings.HasPrefix(s, " *") {
			continue
		}
		m := line.FindStringSubmatch(s)
		if m == nil {
			return Table{}, fmt.Errorf("read families line %d: %q is no entry: %w", i+1, s, sharing.ErrInvalid)
		}
		name, class := m[1], Class(m[2])
		if !slices.Contains(classes(), class) {
			return Table{}, fmt.Errorf("read families line %d: no class %q: %w", i+1, class, sharing.ErrInvalid)
		}
		if _, twice := t.class[name]; twice {
			return Table{}, fmt.Errorf("read families line %d: %q comes twice: %w", i+1, name, sharing.ErrInvalid)
		}
		t.class[name] = class
	}
	return t, nil
}

// Class is what the exported name means, such as Charge for "cuMemAlloc_v2". If the table does not have the name, known
// is false. Such a name is of these families only if Unknown returns it.
func (t Table) Class(name string) (class Class, known bool) {
	class, known = t.class[name]
	return class, known
}

// Names are those of a class, sorted.
func (t Table) Names(class Class) []string {
	var out []string
	for name, c := range t.class {
		if c == class {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Unknown returns those of the names that are of these families and not in the table, sorted. They are entry points of
// a newer driver that may allocate memory without a count.
func (t Table) Unknown(names []string) []string {
	var out []string
	for _, n := range names {
		if _, known := t.class[n]; !known && t.family != nil && t.family.MatchString(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Class is what an entry point means for a count of device memory, and of the GPU's time.
type Class string

// The classes.
const (
	// Charge allocates device memory, at once or, in a graph, at its launch.
	Charge Class = "charge"
	// Release gives device memory back, to the driver or to a pool.
	Release Class = "release"
	// Track allocates nothing itself and decides when, where or for how long memory is held. Mappings keep a released
	// handle's memory, and pools and graphs keep what was freed.
	Track Class = "track"
	// Size tells how much memory there is or is used, and so has to tell of the cap.
	Size Class = "size"
	// Resolve gives the addresses of other entry points.
	Resolve Class = "resolve"
	// Overhead makes the driver hold memory of an amount that only the driver knows: contexts, modules, heaps,
	// managed memory that moves in.
	Overhead Class = "overhead"
	// Imported maps memory that was allocated elsewhere: by another process or another API.
	Imported Class = "foreign"
	// Time has the GPU do something, and so has to wait for the share of its time. Graphs' launches are Track.
	Time Class = "time"
	// Host allocates, frees or pins memory of the host.
	Host Class = "host"
	// None belongs to these families by name alone, and changes no amount.
	None Class = "none"
)

// classes are all of them.
func classes() []Class {
	return []Class{Charge, Release, Track, Size, Resolve, Overhead, Imported, Time, Host, None}
}

// RejectManaged decides whether programs may allocate managed memory from now on. What they have allocated stays.
func (r *UsageFile) RejectManaged(reject bool) {
	word := uint64(0)
	if reject {
		word = 1
	}
	atomic.StoreUint64(&r.limits.rejectsManaged, word)
}

// RejectsManaged reports what RejectManaged decided.
func (r *UsageFile) RejectsManaged() bool { return atomic.LoadUint64(&r.limits.rejectsManaged) != 0 }

// The layout of lib/region.h; a test compares the two.
const (
	limitsMagic = 0x334d494c4652454b // "KERFLIM3"
	usageMagic  = 0x334553554652454b // "KERFUSE3"
	// MaxDevices is how many GPUs one region can have.
	MaxDevices = 16
	// MaxProcesses is how many processes can count in one region at a time.
	MaxProcesses = 1024

	// UnknownContext stands for the size of a context that is not known: see SetContext.
	UnknownContext = sharing.Bytes(1<<64 - 1)

	pidBits = 22
)

type limitEntry struct {
	uuid                            [16]byte
	limit, overhead, context, moves uint64
}

type limitsPage struct {
	magic, devices uint64
	device         [MaxDevices]limitEntry
	percent        [MaxDevices]uint64
	rejectsManaged uint64
	bound, least   [MaxDevices]uint64
}

type slot struct {
	owner, spare, begun, ended uint64
	held                       [MaxDevices]uint64
	space, making              uint64
	waiting                    [MaxDevices]uint64
	_                          [2]uint64
}

type total struct {
	bytes                                    uint64
	budget                                   int64
	charged, refills, launches, past, waited uint64
	ran, refused, turn, occupied             uint64
	_                                        [5]uint64
}

type usagePage struct {
	magic, rejected uint64
	_               [6]uint64
	total           [MaxDevices]total
	slot            [MaxProcesses]slot
	// managed is the part of each slot's held that is managed memory.
	managed [MaxProcesses][MaxDevices]uint64
}

// named is the process that a slot names.
func named(owner, space uint64) Process {
	return Process{PID: int(owner & (1<<pidBits - 1)), Start: owner >> pidBits, Space: space}
}
