/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * dlopen, dlsym and their like. The C library tells by the return address who asks, so whatever may depend on that ends
 * in a jump to it and not in a call: these functions have to be compiled with sibling calls.
 */
#include <dlfcn.h>

#include "kerf.h"
#include "text.h"

static struct kerf_loader loader;
static _Atomic bool ready;

const struct kerf_loader *kerf_loader(void)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire)) { /* threads that meet here find the same */
		loader.sym = (void *(*)(void *, const char *))kerf_libc("dlsym");
		loader.vsym = (void *(*)(void *, const char *, const char *))kerf_libc("dlvsym");
		loader.open = (void *(*)(const char *, int))kerf_libc("dlopen");
		loader.mopen = (void *(*)(long, const char *, int))kerf_libc("dlmopen");
		loader.error = (char *(*)(void))kerf_libc("dlerror");
		/* Where these live in a library of their own it may be loaded later. */
		atomic_store_explicit(&ready, loader.sym && loader.open, memory_order_release);
	}
	return &loader;
}

static bool of_driver(const char *name)
{
	return name && ((name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z') ||
			kerf_begins(name, "nvml"));
}

/* The function here of that name, by which the driver's functions could be had in turn; or NULL. */
static void *of_loader(const char *name)
{
	if (!name || name[0] != 'd' || name[1] != 'l')
		return NULL;
	return kerf_same(name, "dlsym")     ? (void *)(uintptr_t)dlsym
	       : kerf_same(name, "dlvsym")  ? (void *)(uintptr_t)dlvsym
	       : kerf_same(name, "dlopen")  ? (void *)(uintptr_t)dlopen
	       : kerf_same(name, "dlmopen") ? (void *)(uintptr_t)dlmopen
					      : NULL;
}

static bool is_the_libc_s(const void *found)
{
	const struct kerf_loader *l = kerf_loader();
	return found == (const void *)(uintptr_t)l->sym || found == (const void *)(uintptr_t)l->vsym ||
	       found == (const void *)(uintptr_t)l->open || found == (const void *)(uintptr_t)l->mopen;
}

void *kerf_instead(const char *name, void *there)
{
	void *own = of_loader(name), *to = NULL;
	if (own)
		return !there || is_the_libc_s(there) ? own : NULL;
	if (of_driver(name))
		to = there ? kerf_route(there) : kerf_wrapper(name);
	return to == there ? NULL : to;
}

/* How often a library was opened deep whose imports were not led here then, and how many objects there were at the
 * first time; and what of that this thread has seen. */
static _Atomic unsigned opened;
static _Atomic size_t at_first = SIZE_MAX;
static _Thread_local unsigned seen __attribute__((tls_model("initial-exec")));

static void lead_what_was_opened(void)
{
	unsigned now = atomic_load_explicit(&opened, memory_order_acquire);
	if (now == seen)
		return;
	seen = now;
	kerf_lead(atomic_load(&at_first));
}

/* Does the caller's "next" begin before this library? */
static bool is_next(const void *caller)
{
	return kerf_comes_before(caller, (const void *)(uintptr_t)kerf_loader);
}

/* Where the driver has no function of a name, this library's is no answer: what comes after it is. */
static void *after_us(const char *name)
{
	return kerf_route(kerf_loader()->sym(RTLD_NEXT, name));
}

/* What decide answers where the C library is to be asked by the caller. Nothing in the functions that end with
 * that may keep them from ending in a jump: no address of a local variable is taken there. */
static char pass;

static __attribute__((noinline)) void *decide(void *handle, const char *name, const char *version, const void *caller)
{
	const struct kerf_loader *l = kerf_loader();
	void *wrapper = NULL, *own = of_loader(name), *found;
	lead_what_was_opened();
	enum kerf_known known = of_driver(name) ? kerf_known(name, &wrapper) : KERF_NOT_WRAPPED;
	if (known == KERF_NOT_WRAPPED && !own) {
		if (handle == RTLD_NEXT || !of_driver(name) || !kerf_allocates(name))
			return &pass;
		found = version ? l->vsym(handle, name, version) : l->sym(handle, name);
		return found ? kerf_rejecting(name, 0) : NULL;
	}
	if (handle == RTLD_NEXT) {
		/* A version is looked for where symbols have versions, which those of this library have not. */
		bool next = !version && is_next(caller);
		if (next && known == KERF_ABSENT)
			return after_us(name);
		if (next || known == KERF_ABSENT)
			return &pass;
		return own ? own : wrapper;
	}
	found = version ? l->vsym(handle, name, version) : l->sym(handle, name);
	if (own)
		return is_the_libc_s(found) ? own : found;
	if (known == KERF_ABSENT && found == wrapper)
		return after_us(name);
	return kerf_route(found);
}

void *dlsym(void *restrict handle, const char *restrict name)
{
	void *(*real)(void *, const char *) = kerf_loader()->sym;
	if (!real)
		return NULL;
	void *found = decide(handle, name, NULL, __builtin_return_address(0));
	return found == &pass ? real(handle, name) : found;
}

void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
	void *(*real)(void *, const char *, const char *) = kerf_loader()->vsym;
	if (!real)
		return NULL;
	void *found = decide(handle, name, version, __builtin_return_address(0));
	return found == &pass ? real(handle, name, version) : found;
}

/* A path without variables means the same for every caller. */
static bool is_plain_path(const char *file)
{
	return kerf_has(file, '/') && !kerf_has(file, '$');
}

/* Where a name is looked for depends on who asks, so that has to be left to the C library: the imports are led here as
 * soon as the program asks for a function of what it has opened. */
void *dlopen(const char *file, int mode)
{
	void *(*real)(const char *, int) = kerf_loader()->open;
	if (!real)
		return NULL;
	if (!file || !(mode & RTLD_DEEPBIND))
		return real(file, mode);
	size_t from = kerf_objects(), none = SIZE_MAX;
	if (!is_plain_path(file)) {
		atomic_compare_exchange_strong(&at_first, &none, from);
		atomic_fetch_add_explicit(&opened, 1, memory_order_release);
		return real(file, mode);
	}
	void *handle = real(file, mode);
	if (handle)
		kerf_lead(from);
	return handle;
}

/* A driver in a separate name space would be another one, which nothing wraps. */
void *dlmopen(long space, const char *file, int mode)
{
	const struct kerf_loader *l = kerf_loader();
	const char *name = file ? kerf_name(file) : NULL;
	if (name && l->open && (kerf_begins(name, "libcuda.so") || kerf_begins(name, "libnvidia-ml.so")))
		return l->open(file, mode);
	return l->mopen ? l->mopen(space, file, mode) : NULL;
}
