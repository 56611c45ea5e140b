// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// The region's two files. A container gets the first read-only.
const (
	LimitsFile    = "limits"
	UsageFileName = "usage"
	// PartFile is there where the region is of a shared MIG instance, and has its id.
	PartFile = "part"
)

// maxPartID is more than any id has.
const maxPartID = 256

// Process is a process as it sees itself, in its own PID namespace and time namespace. It is the PID, and the start
// time in clock ticks since boot, field 22 of /proc/PID/stat.
type Process struct {
	PID   int
	Start uint64
	// Space is the number of the PID namespace, or 0 if unknown. Processes of several containers may count in one
	// region with the same PID.
	Space uint64
}

// Device is a GPU of a region and the cap on it.
type Device struct {
	GPU   sharing.GPURef
	Limit sharing.Bytes
}

// Usage is what a region counts of one GPU. A tenant can write Used and Refused: they are good for show, not for
// enforcement.
type Usage struct {
	GPU                   sharing.GPURef
	Limit, Overhead, Used sharing.Bytes
	// Context is what each process puts aside before it makes a context. If it is UnknownContext, Bound is the most
	// that one takes, and Least the least that one of this region took. An unknown value is 0.
	Context, Bound, Least sharing.Bytes
	// Refused is how many calls were refused because the limit left no room.
	Refused uint64
}

// UsageFile is the memory that the processes of one container share with the agent. Its owner closes it.
type UsageFile struct {
	limits *limitsPage
	usage  *usagePage
	maps   [2][]byte
	files  [2]os.FileInfo
	place  map[sharing.GPURef]int
	gpus   []sharing.GPURef
	moving bool // see Moving
}

// Create makes the region's files in dir, which exists and has none, and maps them. A shared MIG instance is alone in
// its region. Its UUID changes each time it is created, and any device of a program counts for it. The error is
// sharing.ErrInvalid for no GPU, more than MaxDevices, one twice, an instance with others, or an invalid id. It is
// sharing.ErrConflict if there is a region, and sharing.ErrUnavailable if the disk rejects it.
func Create(dir string, devices []Device) (*UsageFile, error) {
	if len(devices) == 0 || len(devices) > MaxDevices {
		return nil, fmt.Errorf("create region %q: %d GPUs, want 1 to %d: %w", dir, len(devices), MaxDevices,
			sharing.ErrInvalid)
	}
	limits := &limitsPage{devices: uint64(len(devices))}
	seen := map[sharing.GPURef]bool{}
	for i, d := range devices {
		id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(string(d.GPU.UUID), "GPU-"), "-", ""))
		if d.GPU.IsInstance() {
			id = nil // only alone in its region
			if len(devices) == 1 {
				id, err = anyDevice(), writePart(dir, d.GPU)
			}
		}
		if errors.Is(err, sharing.ErrUnavailable) {
			return nil, err
		}
		if err != nil || len(id) != 16 || seen[d.GPU] {
			return nil, fmt.Errorf("create region %q: gpu %q is twice there or has no UUID: %w", dir, d.GPU,
				sharing.ErrInvalid)
		}
		seen[d.GPU] = true
		limits.device[i].limit = uint64(d.Limit)
		copy(limits.device[i].uuid[:], id)
	}
	limits.magic = limitsMagic
	usage := &usagePage{magic: usageMagic}
	for name, page := range map[string][]byte{LimitsFile: bytesOf(limits), UsageFileName: bytesOf(usage)} {
		mode := os.FileMode(0o644) // its owner opens it to write, too: an agent in a container may not override modes
		if name == UsageFileName {
			mode = 0o666 // the container's processes of any user count here
		}
		if err := makeFile(filepath.Join(dir, name), page, mode); err != nil {
			return nil, fmt.Errorf("create region %q: %w", dir, err)
		}
	}
	return Open(dir)
}

// anyDevice stands in a region for whatever device the program has; region.c knows it.
func anyDevice() []byte { return bytes.Repeat([]byte{0xff}, 16) }

func writePart(dir string, id sharing.GPURef) error {
	if err := makeFile(filepath.Join(dir, PartFile), []byte(id.String()), 0o600); err != nil {
		return fmt.Errorf("create region %q: %w", dir, err)
	}
	return nil
}

// readPart is the id of the shared instance that a region is of.
func readPart(dir string) (sharing.GPURef, error) {
	text, err := os.ReadFile(filepath.Join(dir, PartFile))
	id, bad := sharing.ParseGPURef(string(text))
	if err != nil || bad != nil || !id.IsInstance() || len(text) > maxPartID {
		return sharing.GPURef{}, fmt.Errorf("open region %q: it does not say of which MIG instance it is: %w", dir,
			errors.Join(sharing.ErrInvalid, err))
	}
	return id, nil
}

func bytesOf[T any](page *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(page)), unsafe.Sizeof(*page)) //nolint:gosec // plain words, no pointers
}

// Open maps a region that an earlier agent made. Errors: sharing.ErrNotFound, sharing.ErrInvalid (no region of
// this layout).
func Open(dir string) (*UsageFile, error) {
	r := &UsageFile{place: map[sharing.GPURef]int{}}
	err := grow(dir)
	if err != nil {
		return nil, err
	}
	if r.maps[0], r.files[0], err = mapFile(filepath.Join(dir, LimitsFile), int(unsafe.Sizeof(*r.limits))); err != nil {
		return nil, err
	}
	if r.maps[1], r.files[1], err = mapFile(filepath.Join(dir, UsageFileName),
		int(unsafe.Sizeof(*r.usage))); err != nil {
		_ = r.Close()
		return nil, err
	}
	r.limits = (*limitsPage)(unsafe.Pointer(&r.maps[0][0])) //nolint:gosec // the layout is held to region.h by a test
	r.usage = (*usagePage)(unsafe.Pointer(&r.maps[1][0]))   //nolint:gosec // as above
	valid := r.limits.magic == limitsMagic && r.limits.devices <= MaxDevices
	if err := guard(func() { valid = valid && r.usage.magic == usageMagic }); err != nil || !valid {
		_ = r.Close()
		return nil, fmt.Errorf("open region %q: not of this layout: %w", dir, sharing.ErrInvalid)
	}
	for i := range int(r.limits.devices) { //nolint:gosec // no more than MaxDevices
		if l := &r.limits.device[i]; atomic.LoadUint64(&l.moves)%2 == 1 { // an agent died while it moved bytes
			atomic.AddUint64(&l.moves, 1)
		}
		u := r.limits.device[i].uuid
		id := sharing.GPURef{UUID: sharing.GPUID(fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10],
			u[10:]))}
		if bytes.Equal(u[:], anyDevice()) {
			if id, err = readPart(dir); err != nil {
				_ = r.Close()
				return nil, err
			}
		}
		r.gpus = append(r.gpus, id)
		r.place[id] = i
	}
	return r, nil
}

func mapFile(path string, size int) ([]byte, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open region file %q: %w: %w", path, err, sharing.ErrNotFound)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < int64(size) {
		return nil, nil, fmt.Errorf("open region file %q: shorter than %d bytes: %w", path, size, sharing.ErrInvalid)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map region file %q: %w: %w", path, err, sharing.ErrUnavailable)
	}
	return m, info, nil
}

// SetLimit changes the cap on a GPU, for the next reservation of every process. Use above it stays.
// sharing.ErrNotFound: the region has no such GPU.
func (r *UsageFile) SetLimit(gpu sharing.GPURef, limit sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set limit of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.device[i].limit, uint64(limit))
	return nil
}

// Usage reads the counters, GPU by GPU in the order of Create. Used and Refused are 0 if the container has truncated
// its file.
func (r *UsageFile) Usage() []Usage {
	out := make([]Usage, len(r.gpus))
	for i, gpu := range r.gpus {
		out[i] = Usage{
			GPU:      gpu,
			Limit:    sharing.Bytes(atomic.LoadUint64(&r.limits.device[i].limit)),
			Overhead: sharing.Bytes(atomic.LoadUint64(&r.limits.device[i].overhead)),
			Context:  sharing.Bytes(atomic.LoadUint64(&r.limits.device[i].context)),
			Bound:    sharing.Bytes(atomic.LoadUint64(&r.limits.bound[i])),
			Least:    sharing.Bytes(atomic.LoadUint64(&r.limits.least[i])),
		}
	}
	_ = guard(func() {
		for i := range out {
			out[i].Used = sharing.Bytes(atomic.LoadUint64(&r.usage.total[i].bytes))
			out[i].Refused = atomic.LoadUint64(&r.usage.total[i].refused)
		}
	})
	return out
}

// Rejected is how often programs got a function that rejects each call. The function that they asked for allocates, and
// libkerf does not know it. Tenants can write it. It is 0 if the container has truncated its file.
func (r *UsageFile) Rejected() (n uint64) {
	_ = guard(func() { n = atomic.LoadUint64(&r.usage.rejected) })
	return n
}

// guard is Guarded for a function without an error.
func guard(touch func()) error {
	return Guarded(func() error {
		touch()
		return nil
	})
}

// Close unmaps the region; its files and what is counted in them stay. Nothing of r may be called afterwards.
func (r *UsageFile) Close() error {
	for i, m := range r.maps {
		if m == nil {
			continue
		}
		r.maps[i] = nil
		if err := unix.Munmap(m); err != nil {
			return fmt.Errorf("unmap region: %w", err)
		}
	}
	return nil
}

// olderSizes are the sizes that older agents gave the files of a region. Each is the offset of the first word that came
// later.
func olderSizes() map[string][]int64 {
	return map[string][]int64{
		LimitsFile: {int64(unsafe.Offsetof(limitsPage{}.rejectsManaged)),
			int64(unsafe.Offsetof(limitsPage{}.bound))},
		UsageFileName: {int64(unsafe.Offsetof(usagePage{}.managed))},
	}
}

// grow gives the files of an older agent the words that came later, all zero. A library that has a shorter file mapped
// never touches them. A file that is missing or of any other size is left for the caller to report.
func grow(dir string) error {
	now := map[string]int64{LimitsFile: int64(unsafe.Sizeof(limitsPage{})),
		UsageFileName: int64(unsafe.Sizeof(usagePage{}))}
	for name, sizes := range olderSizes() {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && slices.Contains(sizes, info.Size()) {
			if err := os.Truncate(path, now[name]); err != nil {
				return fmt.Errorf("grow region file %q: %w: %w", path, err, sharing.ErrUnavailable)
			}
		}
	}
	return nil
}
