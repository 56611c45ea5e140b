// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static void *kerf_dcgm_open(const char *path) { return dlopen(path, RTLD_LAZY | RTLD_LOCAL); }
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/kerf-gpu/kerf/sharing"
)

// LibraryName is what is loaded, wherever the dynamic linker finds it.
const LibraryName = "libdcgm.so.4"

// preflight loads the library for a moment and refuses one that lacks a function which is called: go-dcgm would end the
// process with such a call.
func preflight(remote bool) error {
	name := C.CString(LibraryName)
	defer C.free(unsafe.Pointer(name))
	lib := C.kerf_dcgm_open(name)
	if lib == nil {
		return fmt.Errorf("load library %q: the dynamic linker does not find it, or cannot use it: %w", LibraryName, sharing.ErrUnavailable)
	}
	defer C.dlclose(lib)
	for _, f := range requiredFuncs(remote) {
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
		"dcgmInit", "dcgmShutdown", "errorString", "dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUnwatchFields",
		"dcgmUpdateAllFields", "dcgmGetValuesSince_v2", "dcgmProfGetSupportedMetricGroups", "dcgmGetGpuInstanceHierarchy", "dcgmGroupCreate",
		"dcgmGroupAddEntity", "dcgmGroupDestroy",
	)
}
