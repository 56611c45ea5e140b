// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern void *kerf_dcgm_slots[] __attribute__((visibility("hidden")));
extern const char kerf_dcgm_names[] __attribute__((visibility("hidden")));

static void *kerf_dcgm_open(const char *path) { return dlopen(path, RTLD_LAZY | RTLD_LOCAL); }

static void kerf_dcgm_bind(void *library)
{
	void **slot = kerf_dcgm_slots;
	for (const char *name = kerf_dcgm_names; *name; name += strlen(name) + 1, slot++) {
		void *f = dlsym(library, name);
		if (f)
			*slot = f;
	}
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// LibraryName is what is loaded, wherever the dynamic linker finds it.
const LibraryName = "libdcgm.so.4"

// bound is the library that go-dcgm's calls go to, for the life of the process, which no value owns.
var bound struct { //nolint:gochecknoglobals // see above
	sync.Mutex
	lib unsafe.Pointer
}

// bind leads go-dcgm's calls to the library, unless they go to it already. go-dcgm itself leaves its functions to the
// dynamic linker. With LD_BIND_NOW in the environment, that ends a program at its start. A library that lacks a
// function which Kerf calls is an error.
func bind(remote bool) error {
	bound.Lock()
	defer bound.Unlock()
	if bound.lib != nil {
		return has(bound.lib, requiredFuncs(remote))
	}
	name := C.CString(LibraryName)
	defer C.free(unsafe.Pointer(name))
	lib := C.kerf_dcgm_open(name)
	if lib == nil {
		return fmt.Errorf("load library %q: the dynamic linker does not find it, or cannot use it: %w", LibraryName,
			sharing.ErrUnavailable)
	}
	if err := has(lib, requiredFuncs(remote)); err != nil {
		C.dlclose(lib)
		return err
	}
	C.kerf_dcgm_bind(lib)
	bound.lib = lib
	return nil
}

// has returns nil if the library has the functions.
func has(lib unsafe.Pointer, functions []string) error {
	for _, f := range functions {
		symbol := C.CString(f)
		found := C.dlsym(lib, symbol)
		C.free(unsafe.Pointer(symbol))
		if found == nil {
			return fmt.Errorf("load library %q: it has no %s: %w", LibraryName, f, sharing.ErrUnavailable)
		}
	}
	return nil
}

func requiredFuncs(remote bool) []string {
	engine := []string{"dcgmStartEmbedded", "dcgmStopEmbedded"}
	if remote {
		engine = []string{"dcgmConnect_v2", "dcgmDisconnect"}
	}
	return append(
		engine,
		"dcgmInit", "dcgmShutdown", "errorString", "dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields",
		"dcgmUnwatchFields",
		"dcgmUpdateAllFields", "dcgmGetValuesSince_v2", "dcgmProfGetSupportedMetricGroups",
		"dcgmGetGpuInstanceHierarchy", "dcgmGroupCreate",
		"dcgmGroupAddEntity", "dcgmGroupDestroy",
	)
}
