// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"unsafe"
)

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
