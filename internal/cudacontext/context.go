// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cudacontext is the adapter of the CUDA driver library, libcuda.so.1. It makes one context and nothing else.
//
// CUDA keeps a context until the process ends, and a fault in the library ends the process. So a short-lived helper
// calls it, which Start starts.
package cudacontext

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>

typedef int (*init_fn)(unsigned);
typedef int (*device_fn)(int *, int);
typedef int (*retain_fn)(void **, int);

// kerf_cuda_open copies the reason when it fails: dlerror is per thread, and a goroutine may change threads.
static void *kerf_cuda_open(const char *path, char *why, size_t n)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		snprintf(why, n, "%s", dlerror());
	return library;
}

// kerf_make_context returns 0, the CUresult of the call that failed, or -1 if the library lacks a function. name is
// that call.
static int kerf_make_context(void *library, const char **name)
{
	int device, err;
	void *context;
	init_fn init = (init_fn)dlsym(library, *name = "cuInit");
	if (!init)
		return -1;
	device_fn get = (device_fn)dlsym(library, *name = "cuDeviceGet");
	if (!get)
		return -1;
	retain_fn retain = (retain_fn)dlsym(library, *name = "cuDevicePrimaryCtxRetain");
	if (!retain)
		return -1;
	*name = "cuInit";
	if ((err = init(0)))
		return err;
	*name = "cuDeviceGet";
	if ((err = get(&device, 0)))
		return err;
	*name = "cuDevicePrimaryCtxRetain";
	return retain(&context, device);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// whyLength is the room for a reason of the dynamic linker.
const whyLength = 512

// Make makes the primary context of the first GPU that CUDA shows to this process. It stays until the process ends. The
// library is the first of paths that can be loaded. Errors: sharing.ErrNotFound (no library), sharing.ErrUnsupported
// (it lacks a function), sharing.ErrUnavailable (CUDA refuses).
func Make(paths []string) error {
	library, err := open(paths)
	if err != nil {
		return err
	}
	var name *C.char
	code := int(C.kerf_make_context(library, &name)) //nolint:gocritic // the duplicate is in what cgo makes of the call
	switch {
	case code < 0:
		return fmt.Errorf("make context: the CUDA library has no %s: %w", C.GoString(name), sharing.ErrUnsupported)
	case code > 0:
		return fmt.Errorf("make context: %s: CUDA error %d: %w", C.GoString(name), code, sharing.ErrUnavailable)
	}
	return nil
}

func open(paths []string) (unsafe.Pointer, error) {
	last := ""
	for _, path := range paths {
		name, why := C.CString(path), (*C.char)(C.calloc(whyLength, 1))
		library := C.kerf_cuda_open(name, why, whyLength)
		last = C.GoString(why)
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(why))
		if library != nil {
			return library, nil
		}
	}
	return nil, fmt.Errorf("open the CUDA library in %d places: %s: %w", len(paths), last, sharing.ErrNotFound)
}
