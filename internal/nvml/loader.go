// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef int (*kerf_handle_fn)(const char *, void **);

static int kerf_handle(void *handle_fn, const char *uuid, void **dev)
{
	return ((kerf_handle_fn)handle_fn)(uuid, dev);
}

// kerf_open also copies the reason when it fails: dlerror is per thread, and a goroutine may change threads.
static void *kerf_open(const char *path, char *why, size_t n)
{
	void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	const char *e = h ? NULL : dlerror();
	for (size_t i = 0; e && n && i < n; i++) {
		why[i] = i + 1 < n ? e[i] : 0;
		if (!e[i])
			break;
	}
	return h;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

const handleFunc = "nvmlDeviceGetHandleByUUID"

// handles are the GPUs' handles as the library's functions take them, which go-nvml keeps to itself. It holds its own
// reference to the library.
type handles struct {
	lib, find unsafe.Pointer

	// devices are the handles that were looked up. A lookup walks all GPUs, which takes long on nodes with many
	// MIG instances; handles hold until NVML is shut down, and so do handles.
	mu      sync.Mutex
	devices map[string]unsafe.Pointer
}

// openHandles loads the library at path once more. Only a library that cannot be loaded is an error; it may lack the
// function.
func openHandles(path string) (*handles, error) {
	lib, err := dlopen(path)
	if err != nil {
		return nil, err
	}
	return &handles{lib: lib, find: dlsym(lib, handleFunc), devices: map[string]unsafe.Pointer{}}, nil
}

func (h *handles) close() { C.dlclose(h.lib) }

// device is the handle of a GPU.
func (h *handles) device(uuid string) (unsafe.Pointer, error) {
	h.mu.Lock()
	dev, ok := h.devices[uuid]
	h.mu.Unlock()
	if ok {
		return dev, nil
	}
	id := C.CString(uuid)
	defer C.free(unsafe.Pointer(id))
	code := C.kerf_handle(h.find, id, &dev) //nolint:gocritic // of what cgo makes of it
	if err := check(handleFunc, nvml.Return(code)); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices[uuid] = dev
	return dev, nil
}

// judge turns a code into an error. After one that may be the handle's fault, the next call looks it up again.
func (h *handles) judge(uuid, function string, code C.int) error {
	err := check(function, nvml.Return(code))
	if err != nil && !errors.Is(err, sharing.ErrUnsupported) {
		h.mu.Lock()
		delete(h.devices, uuid)
		h.mu.Unlock()
	}
	return err
}

// dlopen loads the library at path; the caller calls dlclose.
func dlopen(path string) (unsafe.Pointer, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var why [512]C.char
	lib := C.kerf_open(p, &why[0], C.size_t(len(why)))
	if lib == nil {
		return nil, fmt.Errorf("load library %q: %s: %w", path, strings.ToValidUTF8(C.GoString(&why[0]), "?"),
			sharing.ErrUnavailable)
	}
	return lib, nil
}

func dlsym(lib unsafe.Pointer, symbol string) unsafe.Pointer {
	s := C.CString(symbol)
	defer C.free(unsafe.Pointer(s))
	return C.dlsym(lib, s)
}

// preflight loads the library at path for a moment, without making its names visible. It rejects a library without a
// function that is called without a check: such a call would kill the process.
func preflight(path string) error {
	lib, err := dlopen(path)
	if err != nil {
		return err
	}
	defer C.dlclose(lib)
	for _, f := range requiredFuncs() {
		if dlsym(lib, f) == nil {
			return fmt.Errorf("load library %q: it has no %s: %w", path, f, sharing.ErrUnavailable)
		}
	}
	return nil
}

func requiredFuncs() []string {
	return []string{
		"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion",
		"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", handleFunc, "nvmlDeviceGetUUID", "nvmlDeviceGetName",
		"nvmlDeviceGetMinorNumber", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo",
	}
}
