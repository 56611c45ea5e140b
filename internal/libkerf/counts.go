// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// Count is what one process has counted at one moment.
type Count struct {
	Process Process
	// Steps is how many times it was at a counter. Quiet means that it was at none just then, and made no context. If
	// two counts are quiet and have the same Steps, Used was the same all the time between.
	Steps uint64
	Quiet bool
	Used  map[sharing.GPURef]sharing.Bytes
	// Managed is the part of Used that is managed memory, with which the driver lists no process.
	Managed map[sharing.GPURef]sharing.Bytes
	// Waiting is the part of Used that stands for contexts which are there, and which the driver tells of: see
	// Correct.
	Waiting map[sharing.GPURef]sharing.Bytes
}

// Counts reads what each process that counts in the region has counted. A tenant can write all of it.
func (r *UsageFile) Counts() []Count {
	var out []Count
	for i := range r.usage.slot {
		s := &r.usage.slot[i]
		who := atomic.LoadUint64(&s.owner)
		if who == 0 || who == buried {
			continue
		}
		c := Count{
			Process: named(who, atomic.LoadUint64(&s.space)),
			Used:    make(map[sharing.GPURef]sharing.Bytes, len(r.gpus)),
			Waiting: make(map[sharing.GPURef]sharing.Bytes, len(r.gpus)),
			Managed: make(map[sharing.GPURef]sharing.Bytes, len(r.gpus)),
		}
		ended := atomic.LoadUint64(&s.ended)
		for d, gpu := range r.gpus {
			c.Used[gpu] = sharing.Bytes(atomic.LoadUint64(&s.held[d]))
			c.Waiting[gpu] = sharing.Bytes(atomic.LoadUint64(&s.waiting[d]))
			c.Managed[gpu] = min(sharing.Bytes(atomic.LoadUint64(&r.usage.managed[i][d])), c.Used[gpu])
		}
		making := atomic.LoadUint64(&s.making)
		c.Steps = atomic.LoadUint64(&s.begun)
		c.Quiet = c.Steps == ended && making == 0
		out = append(out, c)
	}
	return out
}

// Check looks whether the region's files in dir are those that r has mapped, and whole. The container's processes can
// write to the usage file. The error wraps sharing.ErrStale: what the processes count can no longer be trusted, and r
// is of no use. Call it in Guarded.
func (r *UsageFile) Check(dir string) error {
	for i, name := range []string{LimitsFile, UsageFileName} {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return fmt.Errorf("region file %q is gone: %w: %w", path, err, sharing.ErrStale)
		case !os.SameFile(info, r.files[i]):
			return fmt.Errorf("region file %q is another one than processes have: %w", path, sharing.ErrStale)
		case info.Size() != int64(len(r.maps[i])):
			return fmt.Errorf("region file %q has %d bytes instead of %d: %w", path, info.Size(), len(r.maps[i]),
				sharing.ErrStale)
		}
	}
	if atomic.LoadUint64(&r.usage.magic) != usageMagic {
		return fmt.Errorf("usage file in %q was overwritten: %w", dir, sharing.ErrStale)
	}
	return nil
}

// Guarded calls f, which uses regions. If a tenant has truncated a file meanwhile, the fault becomes an error that
// wraps sharing.ErrStale.
func Guarded(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		fault, ok := cause.(interface{ Addr() uintptr })
		if !ok {
			panic(cause) //nolint:forbidigo // it is another's, and goes on its way
		}
		err = fmt.Errorf("region is truncated at address %#x: %w", fault.Addr(), sharing.ErrStale)
	}()
	return f()
}

// emptyImage is a library of 32-bit x86 as its file has it. It is in memory what it is in the file.
type emptyImage struct {
	header   elf.Header32
	segments [3]elf.Prog32
	hash     struct{ buckets, chains, bucket, chain uint32 }
	symbol   elf.Sym32
	names    [4]byte
	dynamic  [6]elf.Dyn32
}

// emptyLibrary is the file of a library without code and without names. No part of it is executable, so it loads from a
// file system that forbids programs.
func emptyLibrary() []byte {
	var m emptyImage
	const readWrite = uint32(elf.PF_R | elf.PF_W) // the loader writes into the dynamic section
	size, dynamic := uint32(unsafe.Sizeof(m)), uint32(unsafe.Offsetof(m.dynamic))
	m.header = elf.Header32{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
		},
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT),
		Phoff: uint32(unsafe.Offsetof(m.segments)), Ehsize: uint16(unsafe.Sizeof(m.header)),
		Phentsize: uint16(unsafe.Sizeof(m.segments[0])), Phnum: uint16(len(m.segments)),
	}
	m.segments = [3]elf.Prog32{
		{Type: uint32(elf.PT_LOAD), Filesz: size, Memsz: size, Flags: readWrite, Align: 4096},
		{
			Type: uint32(elf.PT_DYNAMIC), Off: dynamic, Vaddr: dynamic, Paddr: dynamic,
			Filesz: size - dynamic, Memsz: size - dynamic, Flags: readWrite, Align: 4,
		},
		{Type: uint32(elf.PT_GNU_STACK), Flags: readWrite}, // without it the stack becomes executable
	}
	m.hash.buckets, m.hash.chains = 1, 1
	m.dynamic = [6]elf.Dyn32{
		{Tag: int32(elf.DT_HASH), Val: uint32(unsafe.Offsetof(m.hash))},
		{Tag: int32(elf.DT_SYMTAB), Val: uint32(unsafe.Offsetof(m.symbol))},
		{Tag: int32(elf.DT_SYMENT), Val: uint32(unsafe.Sizeof(m.symbol))},
		{Tag: int32(elf.DT_STRTAB), Val: uint32(unsafe.Offsetof(m.names))},
		{Tag: int32(elf.DT_STRSZ), Val: uint32(len(m.names))},
	}
	var out bytes.Buffer
	// A write into memory fails for no value of a fixed size. The fields have no padding, which a test checks.
	_ = binary.Write(&out, binary.LittleEndian, m)
	return out.Bytes()
}

// Reserved is what a process has counted for contexts that are there by now.
type Reserved struct {
	Process Process
	Bytes   sharing.Bytes
}

// SetContext sets how much each process puts aside on a GPU before it makes a context; 0: nothing. With UnknownContext
// a process takes the bound, or all free memory if that does not fit. It then waits until the agent has seen what the
// context takes. So does a process without free memory. The error sharing.ErrNotFound means that the region has no such
// GPU.
func (r *UsageFile) SetContext(gpu sharing.GPURef, context sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set context of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.device[i].context, uint64(context))
	return nil
}

// SetBound sets the most that a context takes on a GPU; 0: not known. It counts while the size is UnknownContext. A
// library that is older than bounds goes on without. sharing.ErrNotFound: the region has no such GPU.
func (r *UsageFile) SetBound(gpu sharing.GPURef, bound sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("set bound of contexts of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	atomic.StoreUint64(&r.limits.bound[i], uint64(bound))
	return nil
}

// SawContext notes that a context of this region took so much. The region keeps the least: with UnknownContext no
// context is made in less room. Programs of the region can change what is seen, so it is used for this region alone.
// Only one goroutine of one process may call it at a time. sharing.ErrNotFound: the region has no such GPU.
func (r *UsageFile) SawContext(gpu sharing.GPURef, took sharing.Bytes) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("note context of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	if least := atomic.LoadUint64(&r.limits.least[i]); least == 0 || uint64(took) < least {
		atomic.StoreUint64(&r.limits.least[i], uint64(took))
	}
	return nil
}

// Correct sets the bytes that the driver holds for the container on a GPU beyond what is counted: contexts, modules,
// pools. They count against the cap. seen is the part of the processes' reservation for contexts that it releases,
// unless a process has reserved more meanwhile. Each byte is always counted at least once, and no process is refused
// for a moment of double counting. One goroutine of one process may call it at a time. sharing.ErrNotFound: the
// region has no such GPU; sharing.ErrStale: the container truncated the file.
func (r *UsageFile) Correct(gpu sharing.GPURef, overhead sharing.Bytes, seen []Reserved) error {
	i, ok := r.place[gpu]
	if !ok {
		return fmt.Errorf("correct overhead of gpu %q: %w", gpu, sharing.ErrNotFound)
	}
	if len(seen) == 0 {
		atomic.StoreUint64(&r.limits.device[i].overhead, uint64(overhead))
		return nil
	}
	return r.Moving(func() error {
		atomic.StoreUint64(&r.limits.device[i].overhead, uint64(overhead))
		return guard(func() {
			for _, s := range seen {
				r.release(i, s)
			}
		})
	})
}

// Moving calls do, which moves bytes from the counters to the overhead. Meanwhile they count twice, and a process that
// finds no room waits for the end of it. Calls may be nested.
func (r *UsageFile) Moving(do func() error) error {
	if r.moving {
		return do()
	}
	r.moving = true
	for i := range r.gpus {
		atomic.AddUint64(&r.limits.device[i].moves, 1)
	}
	defer func() {
		for i := range r.gpus {
			atomic.AddUint64(&r.limits.device[i].moves, 1)
		}
		r.moving = false
	}()
	return do()
}

func (r *UsageFile) release(device int, seen Reserved) {
	n := uint64(seen.Bytes)
	for i := range r.usage.slot {
		s := &r.usage.slot[i]
		who := named(atomic.LoadUint64(&s.owner), atomic.LoadUint64(&s.space))
		if who != seen.Process || !atomic.CompareAndSwapUint64(&s.waiting[device], n, 0) {
			continue
		}
		for {
			held := atomic.LoadUint64(&s.held[device])
			if held < n { // it has ended meanwhile, and all was given back
				return
			}
			if atomic.CompareAndSwapUint64(&s.held[device], held, held-n) {
				break
			}
		}
		subtract(&r.usage.total[device].bytes, n)
		return
	}
}
