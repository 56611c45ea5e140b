/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Loads the CUDA driver.
 */
#include "driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

const char *load_driver(struct driver *d)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return dlerror();
	static const struct {
		size_t offset;
		const char *symbol;
		bool optional;
	} functions[] = {
#define X(member, symbol) { offsetof(struct driver, member), #symbol, false },
		DRIVER_FUNCTIONS(X)
#undef X
#define X(member, symbol) { offsetof(struct driver, member), #symbol, true },
		DRIVER_OPTIONAL(X)
#undef X
	};
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *found = dlsym(library, functions[i].symbol);
		if (!found && !functions[i].optional)
			return dlerror();
		memcpy((char *)d + functions[i].offset, &found, sizeof found);
	}
	return NULL;
}
