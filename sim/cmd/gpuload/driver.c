/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Loads the CUDA driver, in the ways that programs have. Built once more as a library, gpuload.so, for
 * those that have their own libraries' functions before those that a preloaded one puts in front.
 */
#include "driver.h"
#include "gpuload.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DRIVER "libcuda.so.1"

struct opening {
	const char *name;
	void *(*open)(void);
	/* by this program, or by gpuload.so, deeply bound or in a separate name space */
	enum { HERE, DEEP, ELSEWHERE } where;
	bool early; /* with what the library's constructor has looked up */
};

#ifdef GPULOAD_LIBRARY
static void *(*volatile found_early)(void *restrict, const char *restrict);

static __attribute__((constructor)) void look_early(void)
{
	found_early = dlsym;
}
#else
#define found_early dlsym
#endif

static void *usual(void)
{
	return dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
}

static void *deep(void)
{
	return dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
}

static void *in_space(void)
{
	return dlmopen(LM_ID_NEWLM, DRIVER, RTLD_NOW | RTLD_LOCAL);
}

static const struct opening openings[] = {
	{ "usual", usual, HERE, false },
	{ "deepbind", deep, HERE, false },
	{ "namespace", in_space, HERE, false },
	{ "apart", usual, DEEP, false },
	{ "early", usual, DEEP, true },
	{ "elsewhere", usual, ELSEWHERE, false },
};
enum { OPENINGS = sizeof openings / sizeof openings[0] };

const struct opening *find_opening(const char *name)
{
	for (int i = 0; i < OPENINGS; i++)
		if (strcmp(name, openings[i].name) == 0)
			return &openings[i];
	return NULL;
}

const char *opening_name(const struct opening *o)
{
	return o->name;
}

void opening_names(char *out, size_t size)
{
	size_t n = 0;
	out[0] = 0;
	for (int i = 0; i < OPENINGS && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", openings[i].name);
}

#ifndef GPULOAD_LIBRARY
/* What gpuload.so, which is in this program's folder, has found. */
static const char *load_apart(struct driver *d, const struct opening *how)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof ".so");
	if (n < 0)
		return "its own path is not to be had";
	memcpy(path + n, ".so", sizeof ".so");
	void *library = how->where == ELSEWHERE ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL)
						: dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!library)
		return dlerror();
	const char *(*load)(struct driver *, const struct opening *) =
		(const char *(*)(struct driver *, const struct opening *))dlsym(library, "load_driver");
	return load ? load(d, how) : dlerror();
}
#endif

const char *load_driver(struct driver *d, const struct opening *how)
{
#ifdef GPULOAD_LIBRARY
	how = find_opening(how->name); /* its own, and not the program's */
#else
	if (how->where != HERE)
		return load_apart(d, how);
#endif
	void *library = how->open();
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
		void *found = how->early ? found_early(library, functions[i].symbol) : dlsym(library, functions[i].symbol);
		if (!found && !functions[i].optional)
			return dlerror();
		memcpy((char *)d + functions[i].offset, &found, sizeof found);
	}
	return NULL;
}
