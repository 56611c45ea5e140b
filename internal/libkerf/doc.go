// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libkerf is the agent's side of counting device memory inside a container. A counting library in C shares its
// knowledge and its memory layout.
//
// The knowledge is lib/families.def. It lists the entry points of the CUDA driver that give a program device memory,
// and what each of them means for a count. The file is read strictly. Tests compare it with the names that the driver
// has published from CUDA 11.4 to 13.2. For names of a later driver, see Table.Unknown.
//
// The memory is a UsageFileName: limits that processes can only read, and counters (lib/region.h, lib/counter.h). It
// makes four promises:
//
//   - Reservations never add up to more than the limit at the time.
//   - A reservation is rejected only without free memory.
//   - No process waits for another.
//   - Bury takes back the memory of dead processes, at whatever instruction they died.
//
// The library is libkerf.so, built from lib/ (make build). A program preloads it, with the region's two files in the
// library's folder. It gets "out of memory" at the cap and sees the cap as the GPU's size, through CUDA and NVML.
// lib/wrapped.def lists the counted functions. Without a region, or on a GPU that the region does not name, there is
// no memory. A program that finds no room first reclaims the memory of ended processes of its pid namespace. A
// program without CUDA does not notice the library.
//
// A program preloads it by PreloadPath. Programs of musl and programs of ASan, TSan, MSan, LSan and UBSan start with
// it. 32-bit programs load an empty library instead. In musl's programs the library does nothing: NVIDIA's driver has
// no library for musl.
//
// Not promised: that anything is counted. A program that writes to the counters or does not preload the library
// bypasses them. So does a library in another link-map namespace that looks for the driver itself: it finds the C
// library's dlsym of that namespace. (A program may open the driver so. A library that is loaded with RTLD_DEEPBIND
// gets the wrappers as soon as it is loaded, but not what its constructors look up before.) Only the driver's amounts
// are reliable, and Correct applies them. Only they have what the driver uses for contexts and modules, and in small
// allocations above their size. The same holds for a graphics driver, also if CUDA maps its memory. Tenants can write
// the files of the counters: a user of a UsageFileName calls it within Guarded and checks with Check.
package libkerf
