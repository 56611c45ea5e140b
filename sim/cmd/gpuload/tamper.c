/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a tenant may try with the management library: to change a GPU for everybody, and its own cap. Nothing here is
 * undone, so that it is for machines that are made for tests.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuload.h"

#define LIBRARY "libnvidia-ml.so.1"

typedef void *device;
struct limits {
	const char *dir;
	unsigned long long soft, hard;
};

/* Of the management library, as nvml.h has them. */
typedef int (*init_fn)(void);
typedef int (*handle_fn)(unsigned int, device *);
typedef int (*set_fn)(device, unsigned int);
typedef int (*mig_fn)(device, unsigned int, int *);
typedef int (*limits_fn)(device, const struct limits *);

enum { EXCLUSIVE_PROCESS = 3, NO_SUCH_CALL = -1 };

/* The directory of this process's cgroup v2, as it sees the tree; false without one. */
static bool own_cgroup(char *out, size_t size)
{
	char line[PATH_MAX + 64], mount[PATH_MAX] = "", own[PATH_MAX] = "", kind[64];
	FILE *f = fopen("/proc/self/mounts", "re");
	while (f && !*mount && fgets(line, sizeof line, f))
		if (sscanf(line, "%*s %4095s %63s", mount, kind) != 2 || strcmp(kind, "cgroup2") != 0)
			*mount = 0;
	if (f)
		fclose(f);
	f = fopen("/proc/self/cgroup", "re");
	while (f && !*own && fgets(line, sizeof line, f))
		if (strncmp(line, "0::", 3) == 0)
			snprintf(own, sizeof own, "%s", strtok(line + 3, "\n"));
	if (f)
		fclose(f);
	return *mount && *own && snprintf(out, size, "%s%s", mount, own) < (int)size;
}

static bool say(const char *what, int result)
{
	if (result == NO_SUCH_CALL)
		printf("{\"call\":\"%s\",\"result\":null}\n", what);
	else
		printf("{\"call\":\"%s\",\"result\":%d}\n", what, result);
	return result == 0;
}

int tamper(const struct options *o)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	init_fn init = library ? (init_fn)dlsym(library, "nvmlInit_v2") : NULL;
	handle_fn handle = library ? (handle_fn)dlsym(library, "nvmlDeviceGetHandleByIndex_v2") : NULL;
	device gpu;
	int ret;
	if (!init || !handle) {
		const char *why = dlerror();
		fprintf(stderr, "gpuload: --tamper: %s: %s; run it where the driver's library is\n", LIBRARY,
			why ? why : "has no nvmlInit_v2");
		return EXIT_USAGE;
	}
	if ((ret = init()) || (ret = handle((unsigned int)o->gpu, &gpu))) {
		say("open", ret);
		return EXIT_MET_ERROR;
	}
	set_fn power = (set_fn)dlsym(library, "nvmlDeviceSetPowerManagementLimit");
	set_fn mode = (set_fn)dlsym(library, "nvmlDeviceSetComputeMode");
	mig_fn mig = (mig_fn)dlsym(library, "nvmlDeviceSetMigMode");
	limits_fn limit = (limits_fn)dlsym(library, "nvmlDeviceSetMemoryLimits_v1");
	char dir[2 * PATH_MAX];
	int activation, changed = 0;
	struct limits all = { dir, 0, ~0ULL }; /* none */
	changed += say("power limit", power ? power(gpu, 200000) : NO_SUCH_CALL);
	changed += say("compute mode", mode ? mode(gpu, EXCLUSIVE_PROCESS) : NO_SUCH_CALL);
	changed += say("memory limit", limit && own_cgroup(dir, sizeof dir) ? limit(gpu, &all) : NO_SUCH_CALL);
	changed += say("MIG mode", mig ? mig(gpu, 1, &activation) : NO_SUCH_CALL);
	return changed ? EXIT_OK : EXIT_MET_ERROR;
}
