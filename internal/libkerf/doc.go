// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libkerf is the agent's side of counting device memory inside a container, and the knowledge and the memory
// layout that a counting library in C shares with it.
//
// The knowledge is lib/families.def: through which entry points of the CUDA driver a program can get device memory,
// and what each of them means for a count. The file is read strictly, and tests hold it to the names that the
// driver has published from CUDA 11.4 to 13.2; Table.Unknown tells names of a later driver.
//
// The memory is a Region: limits that processes can only read, and counters (lib/region.h, lib/counter.h). It promises
// that reservations never add up to more than the limit at the time, that one is refused only where there is no room,
// that no process waits for another, and that Bury takes back what dead processes held, at whatever
// instruction they died.
//
// The library is libkerf.so, built from lib/ (make build). A program that preloads it, with the region's two files in
// the library's folder, meets an error "out of memory" where the limit ends and is told the limit as the GPU's size,
// by CUDA and by NVML. What it counts is what lib/wrapped.def names; without a region, or on a GPU that the region
// does not name, there is no memory to be had. A program that finds no room first takes what the dead of its pid
// namespace held. One that has nothing to do with CUDA does not notice the library.
//
// A program preloads it by PreloadPath. Programs of musl and programs of ASan, TSan, MSan, LSan and UBSan start with it.
// 32-bit programs load an empty library instead. In musl's programs the library does nothing: NVIDIA's driver has no
// library for musl.
//
// Not promised: that anything is counted. A program that writes to the counters or does not preload the library gets past
// them, and so does a library that was loaded into another name space and looks for the driver by itself: it finds the C
// library's dlsym of that space. (The driver itself may be opened so. What is loaded with RTLD_DEEPBIND is led here as soon
// as it is loaded; what its constructors look up before is not.)
// Only the driver's own figures tell, and Correct is where they come in. What the driver holds for contexts and modules, and
// in small allocations beyond their size, is only in those, too; so is what a graphics driver holds, also where CUDA maps it.
// The files of the counters are the tenants' to write to: whoever uses a Region calls it within Guarded and asks Check.
package libkerf
