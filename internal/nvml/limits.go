// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// The memory limits came with driver r615 and are in no header that we have; these are the documented forms.
typedef struct { const char *name_space; uint64_t soft, hard; } kerf_set_limits;
typedef struct { const char *name_space; uint64_t soft, hard, used; } kerf_get_limits;
_Static_assert(sizeof(void *) != 8 || sizeof(kerf_set_limits) == 24, "layout of nvmlSetMemoryLimits_v1_t");
_Static_assert(sizeof(void *) != 8 || sizeof(kerf_get_limits) == 32, "layout of nvmlGetMemoryLimits_v1_t");

typedef int (*kerf_handle_fn)(const char *, void **);
typedef int (*kerf_set_fn)(void *, kerf_set_limits *);
typedef int (*kerf_get_fn)(void *, kerf_get_limits *);

static int kerf_handle(void *handle_fn, const char *uuid, void **dev)
{
	return ((kerf_handle_fn)handle_fn)(uuid, dev);
}

static int kerf_set(void *set_fn, void *dev, const char *dir, uint64_t soft, uint64_t hard)
{
	kerf_set_limits l = { dir, soft, hard };
	return ((kerf_set_fn)set_fn)(dev, &l);
}

static int kerf_get(void *get_fn, void *dev, const char *dir, uint64_t *out)
{
	kerf_get_limits l = { dir, 0, 0, 0 };
	int rc = ((kerf_get_fn)get_fn)(dev, &l);
	out[0] = l.soft;
	out[1] = l.hard;
	out[2] = l.used;
	return rc;
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

// kerf_bound returns the file that the program's own NVML calls are bound to, or NULL.
static const char *kerf_bound(void)
{
	Dl_info info;
	void *f = dlsym(RTLD_DEFAULT, "nvmlInit_v2");
	return f && dladdr(f, &info) ? info.dli_fname : NULL;
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

const (
	setLimitsFunc = "nvmlDeviceSetMemoryLimits_v1"
	getLimitsFunc = "nvmlDeviceGetMemoryLimits_v1"
	handleFunc    = "nvmlDeviceGetHandleByUUID"
)

// limits calls the memory limit functions through pointers that were looked up in the library. It holds its
// own reference to the library.
type limits struct {
	lib, handle, setter, getter unsafe.Pointer

	// devices are the handles that were looked up. A lookup walks all GPUs, which takes long on nodes with many
	// MIG instances; handles hold until NVML is shut down, and so do limits.
	mu      sync.Mutex
	devices map[string]unsafe.Pointer
}

// openLimits looks the functions up in the library at path. Only a library that cannot be loaded is an
// error; absent functions show in present.
func openLimits(path string) (*limits, error) {
	lib, err := dlopen(path)
	if err != nil {
		return nil, err
	}
	return &limits{lib: lib, handle: dlsym(lib, handleFunc), setter: dlsym(lib, setLimitsFunc), getter: dlsym(lib, getLimitsFunc), devices: map[string]unsafe.Pointer{}}, nil
}

func (l *limits) present() bool { return l.handle != nil && l.setter != nil && l.getter != nil }

func (l *limits) close() { C.dlclose(l.lib) }

func (l *limits) set(uuid, dir string, soft, hard uint64) error {
	if !l.present() {
		return absent(setLimitsFunc)
	}
	dev, err := l.device(uuid)
	if err != nil {
		return err
	}
	d := C.CString(dir)
	defer C.free(unsafe.Pointer(d))
	return l.judge(uuid, setLimitsFunc, C.kerf_set(l.setter, dev, d, C.uint64_t(soft), C.uint64_t(hard)))
}

func (l *limits) get(uuid, dir string) (Limit, error) {
	if !l.present() {
		return Limit{}, absent(getLimitsFunc)
	}
	dev, err := l.device(uuid)
	if err != nil {
		return Limit{}, err
	}
	d := C.CString(dir)
	defer C.free(unsafe.Pointer(d))
	var out [3]C.uint64_t
	if err := l.judge(uuid, getLimitsFunc, C.kerf_get(l.getter, dev, d, &out[0])); err != nil {
		return Limit{}, err
	}
	return Limit{Soft: sharing.Bytes(out[0]), Hard: sharing.Bytes(out[1]), Used: sharing.Bytes(out[2])}, nil
}

// device is the handle of a GPU.
func (l *limits) device(uuid string) (unsafe.Pointer, error) {
	l.mu.Lock()
	dev, ok := l.devices[uuid]
	l.mu.Unlock()
	if ok {
		return dev, nil
	}
	id := C.CString(uuid)
	defer C.free(unsafe.Pointer(id))
	code := C.kerf_handle(l.handle, id, &dev) //nolint:gocritic // of what cgo makes of it
	if err := check(handleFunc, nvml.Return(code)); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices[uuid] = dev
	return dev, nil
}

// judge turns a code into an error. After one that may be the handle's fault, the next call looks it up anew.
func (l *limits) judge(uuid, function string, code C.int) error {
	err := check(function, nvml.Return(code))
	if err != nil && !errors.Is(err, sharing.ErrUnsupported) {
		l.mu.Lock()
		delete(l.devices, uuid)
		l.mu.Unlock()
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
		return nil, fmt.Errorf("load library %q: %s: %w", path, strings.ToValidUTF8(C.GoString(&why[0]), "?"), sharing.ErrUnavailable)
	}
	return lib, nil
}

func dlsym(lib unsafe.Pointer, symbol string) unsafe.Pointer {
	s := C.CString(symbol)
	defer C.free(unsafe.Pointer(s))
	return C.dlsym(lib, s)
}

// preflight loads the library at path for a moment, without making its names visible, and refuses one that
// lacks a function which is called without a further look: such a call would kill the process.
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

// boundLibrary returns the file that this process's NVML calls are bound to already, or "".
func boundLibrary() string {
	p := C.kerf_bound()
	if p == nil {
		return ""
	}
	return C.GoString(p)
}
