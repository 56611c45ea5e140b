// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

extern void *kerf_nvml_slots[] __attribute__((visibility("hidden")));
extern const char kerf_nvml_names[] __attribute__((visibility("hidden")));

static void *bound_init;

static void kerf_bind(void *library)
{
	void **slot = kerf_nvml_slots;
	for (const char *name = kerf_nvml_names; *name; name += strlen(name) + 1, slot++) {
		void *f = dlsym(library, name);
		if (f)
			*slot = f;
		if (f && !strcmp(name, "nvmlInit_v2"))
			bound_init = f;
	}
}

// kerf_bound returns the file that NVML calls go to, or NULL.
static const char *kerf_bound(void)
{
	Dl_info info;
	return bound_init && dladdr(bound_init, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import "sync"

// bindOnce guards the process's one binding, which no value owns.
var bindOnce sync.Mutex //nolint:gochecknoglobals // see above

// bind leads go-nvml's calls to the library at path, unless they go to one already. go-nvml itself leaves its functions
// to the dynamic linker. If LD_BIND_NOW is set and no library is loaded, the linker ends a program at its start.
func bind(path string) error {
	bindOnce.Lock()
	defer bindOnce.Unlock()
	if boundLibrary() != "" {
		return nil
	}
	lib, err := dlopen(path) // for the life of the process, like the addresses
	if err != nil {
		return err
	}
	C.kerf_bind(lib)
	return nil
}

// boundLibrary returns the file that this process's NVML calls are bound to already, or "".
func boundLibrary() string {
	p := C.kerf_bound()
	if p == nil {
		return ""
	}
	return C.GoString(p)
}
