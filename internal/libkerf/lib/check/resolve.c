/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ways to the driver's functions.
 */
#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "kerfcheck.h"

static void *library;
static const char *how;

static void *get_library(void)
{
	if (!library)
		library = !strcmp(how, "space") ? dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)
						: dlopen("libcuda.so.1", RTLD_NOW | (!strcmp(how, "default") ? RTLD_GLOBAL : RTLD_LOCAL));
	if (!library) {
		printf("%s\n", dlerror());
		exit(3);
	}
	return library;
}

void choose(const char *way)
{
	how = way;
}

void reopen(void)
{
	dlclose(get_library());
	library = NULL;
}

/* By base name, as the runtime asks: "cuMemAlloc" for cuMemAlloc_v2. */
static void *by_proc(const char *name, bool first, int version, cuuint64_t flags)
{
	char base[64];
	void *f = NULL;
	int status;
	snprintf(base, sizeof base, "%s", name);
	char *end = strstr(base, "_v2");
	if (end)
		*end = 0;
	void *get = dlsym(get_library(), first ? "cuGetProcAddress" : "cuGetProcAddress_v2");
	CUresult ret = first ? ((__typeof__(cuGetProcAddress) *)get)(base, &f, version, flags)
			     : ((__typeof__(cuGetProcAddress_v2) *)get)(base, &f, version, flags, &status);
	if (ret == CUDA_SUCCESS && f)
		return f;
	printf("%s %d\n", name, ret);
	exit(4);
}

/* cuGetProcAddress asked for itself, and then the function. */
static void *by_itself(const char *name)
{
	void *get = by_proc("cuGetProcAddress_v2", false, 12000, 0), *f = NULL;
	char base[64];
	int status;
	snprintf(base, sizeof base, "%s", name);
	char *end = strstr(base, "_v2");
	if (end)
		*end = 0;
	((__typeof__(cuGetProcAddress_v2) *)get)(base, &f, 12000, 0, &status);
	return f;
}

/* The C library's own dlsym, as tools find it. */
static void *by_own_dlsym(const char *name)
{
	void *(*get)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	return get ? get(get_library(), name) : NULL;
}

/* A library that is opened deep: by its path in this program's folder, or by its name in this program's RUNPATH. */
void *open_deep(const char *which, bool by_path)
{
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n < 0)
		exit(3);
	self[n] = 0;
	*strrchr(self, '/') = 0;
	snprintf(path, sizeof path, "%s%s%s.so", by_path ? self : "", by_path ? "/deep/" : "", which);
	void *deep = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!deep) {
		printf("%s\n", dlerror());
		exit(3);
	}
	return deep;
}

static void *by_deep(const char *name, const char *which, bool by_path)
{
	static void *(*find)(const char *);
	if (!find)
		find = (void *(*)(const char *))dlsym(open_deep(which, by_path), "deep_find");
	return find(name);
}

void *resolve(const char *name)
{
	void *f = !strncmp(how, "deep/", 5)   ? by_deep(name, how + 5, true)
		  : !strncmp(how, "name/", 5) ? by_deep(name, how + 5, false)
		  : !strcmp(how, "dlsym") || !strcmp(how, "space") ? dlsym(get_library(), name)
		  : !strcmp(how, "dlvsym")                        ? by_own_dlsym(name)
		  : !strcmp(how, "default")                       ? (get_library(), dlsym(RTLD_DEFAULT, name))
		  : !strcmp(how, "proc1")                         ? by_proc(name, true, 12000, 0)
		  : !strcmp(how, "proc2")                         ? by_proc(name, false, 12000, 0)
		  : !strcmp(how, "ptsz")                          ? by_proc(name, false, 12000, 2)
		  : !strcmp(how, "newer")                         ? by_proc(name, false, 13040, 0)
		  : !strcmp(how, "newer-ptsz")                    ? by_proc(name, false, 13040, 2)
								  : by_itself(name);
	if (!f) {
		printf("%s not found\n", name);
		exit(4);
	}
	return f;
}
