/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which function of the driver a wrapper stands for. The driver is asked first, whatever way a program has to
 * its functions; then the address that it answered is looked up here, so that each variant has its own
 * wrapper. What is not known passes, unless it allocates: then each call is rejected.
 */
#include <dlfcn.h>

#include "kerf.h"
#include "text.h"

static const char *const names[] = {
#define WRAP(name) #name,
#include "wrapped.def"
#undef WRAP
#define X(name) #name,
	KERF_CALLED(X)
#undef X
};

/* ISO C has no cast from a function to void *; POSIX has dlsym return one all the same. */
static void *const wrappers[] = {
#define WRAP(name) (void *)(uintptr_t)name,
#include "wrapped.def"
#undef WRAP
};

static void *_Atomic found[KERF_FUNCTIONS];

static struct {
	const char *file, *prefix;
	_Atomic bool ready;
} libraries[] = { { "libcuda.so.1", "cu", false }, { "libnvidia-ml.so.1", "nvml", false } };

static int library_of(const char *name)
{
	return name[0] == 'n';
}

/* Finds all functions of a library as soon as the program has loaded it, and keeps it loaded. Threads that meet
 * here find the same. */
static bool load(int library)
{
	if (atomic_load_explicit(&libraries[library].ready, memory_order_acquire))
		return true;
	const struct kerf_loader *l = kerf_loader();
	if (!l->open || !l->sym)
		return false;
	void *handle = l->open(libraries[library].file, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	for (int f = 0; handle && f < KERF_FUNCTIONS; f++)
		if (library_of(names[f]) == library)
			atomic_store_explicit(&found[f], l->sym(handle, names[f]), memory_order_relaxed);
	if (handle)
		atomic_store_explicit(&libraries[library].ready, true, memory_order_release);
	if (l->error)
		l->error(); /* what is absent here is no error that the program may find */
	return handle;
}

void *kerf_real(enum kerf_function f)
{
	return load(library_of(names[f])) ? atomic_load_explicit(&found[f], memory_order_relaxed) : NULL;
}

void kerf_load(void)
{
	for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++)
		load((int)i);
}

void *kerf_route(void *address)
{
	if (!address)
		return NULL;
	for (int f = 0; f < KERF_WRAPPED; f++)
		if (address == atomic_load_explicit(&found[f], memory_order_relaxed))
			return wrappers[f];
	return address;
}

void *kerf_wrapper(const char *name)
{
	for (int f = 0; f < KERF_WRAPPED; f++)
		if (kerf_same(name, names[f]))
			return atomic_load_explicit(&found[f], memory_order_relaxed) ? wrappers[f] : NULL;
	return NULL;
}

enum kerf_known kerf_known(const char *name, void **wrapper)
{
	for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++)
		if (kerf_begins(name, libraries[i].prefix))
			load((int)i);
	for (int f = 0; f < KERF_WRAPPED; f++)
		if (kerf_same(name, names[f])) {
			*wrapper = wrappers[f];
			return kerf_real(f) ? KERF_LOADED : KERF_ABSENT;
		}
	return KERF_NOT_WRAPPED;
}

/* Serves for every function that allocates: each returns a CUresult, and none of its arguments is read. */
static CUresult reject(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

void *kerf_rejecting(const char *name, int version)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	kerf_rejected();
	if (!atomic_flag_test_and_set(&said)) {
		const char of[] = { (char)('0' + version / 10000 % 10), (char)('0' + version / 1000 % 10), '.',
				    (char)('0' + version / 10 % 10), 0 };
		kerf_say((const char *const[]){ name, version ? " of CUDA " : "", version ? of : "",
						" is unknown to this version of Kerf: each call is rejected", NULL });
	}
	return (void *)(uintptr_t)reject;
}

static CUresult ask(const char *name, void **function, int version, cuuint64_t flags)
{
	__typeof__(&cuGetProcAddress_v2) newer = KERF_REAL(cuGetProcAddress_v2);
	__typeof__(&cuGetProcAddress) older = KERF_REAL(cuGetProcAddress);
	int status;
	return newer ? newer(name, function, version, flags, &status) : older(name, function, version, flags);
}

/* Which wrapper a function stands for that has no exported address; -1: none. A function of a later CUDA version is
 * known if the driver gives the same one for the newest version that is. */
static int known(const char *name, const void *function, int version, cuuint64_t flags)
{
	void *before = NULL;
	if (version > KERF_KNOWN_UP_TO) {
		version = KERF_KNOWN_UP_TO;
		if (ask(name, &before, version, flags) != CUDA_SUCCESS || before != function)
			return -1;
	}
	int f = kerf_variant(names, name, version, flags);
	return f >= 0 && kerf_real((enum kerf_function)f) ? f : -1;
}

static void route(const char *name, void **function, int version, cuuint64_t flags)
{
	void *wrapper = kerf_route(*function);
	if (!*function || wrapper != *function) {
		*function = wrapper;
		return;
	}
	int f = known(name, *function, version, flags);
	if (f >= 0)
		*function = wrappers[f];
	else if (kerf_allocates(name))
		*function = kerf_rejecting(name, version);
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	KERF_NEED(cuGetProcAddress, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(name, function, version, flags);
	if (ret == CUDA_SUCCESS && function)
		route(name, function, version, flags);
	return ret;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags, int *status)
{
	KERF_NEED(cuGetProcAddress_v2, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(name, function, version, flags, status);
	if (ret == CUDA_SUCCESS && function)
		route(name, function, version, flags);
	return ret;
}
