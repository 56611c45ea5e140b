/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who may keep what a dead process held: the driver frees memory when the last descriptor of a process's files closes,
 * and a forked child has those, too. This is what a program can see of that by itself; the agent knows it from the
 * driver's lists.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "kerf.h"
#include "text.h"

#define PATH_SIZE 512
#define MOST_FILES 16

/* A GPU's device file is called nvidia and a number, wherever it lies. */
static bool is_gpu(const char *path)
{
	const char *name = kerf_name(path), *at = name + 6;
	if (!kerf_begins(name, "nvidia") || !*at)
		return false;
	while (*at >= '0' && *at <= '9')
		at++;
	return !*at;
}

/* Calls see with the target of each descriptor that is a GPU's file, until that is true. Returns 1 where it was, 0
 * where it never was, and -1 where the descriptors cannot be read. */
static int each_gpu(const char *pid, bool (*see)(const char *path, void *with), void *with)
{
	char folder[64], path[PATH_SIZE];
	snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
	DIR *dir = opendir(folder);
	if (!dir)
		return errno == ENOENT || errno == ESRCH ? 0 : -1;
	int found = 0;
	for (struct dirent *e; !found && (e = readdir(dir));) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, path, sizeof path - 1);
		if (n <= 0)
			continue;
		path[n] = 0;
		found = is_gpu(path) && see(path, with);
	}
	closedir(dir);
	return found;
}

struct files {
	char path[MOST_FILES][PATH_SIZE];
	int count;
};

static bool note(const char *path, void *with)
{
	struct files *own = with;
	snprintf(own->path[own->count++], PATH_SIZE, "%s", path);
	return own->count == MOST_FILES;
}

static bool in_common(const char *path, void *with)
{
	const struct files *own = with;
	for (int i = 0; i < own->count; i++)
		if (kerf_same(own->path[i], path))
			return true;
	return false;
}

/* The cgroup of version 2, "0::/path" without the newline; false: it is unknown. */
static bool group(const char *pid, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%s/cgroup", pid);
	FILE *f = fopen(path, "re");
	bool found = false;
	while (f && !found && fgets(text, (int)size, f))
		found = kerf_begins(text, "0::/");
	if (f)
		fclose(f);
	for (char *at = text; found && *at; at++)
		if (*at == '\n')
			*at = 0;
	return found;
}

bool kerf_may_keep(bool (*counts)(int pid, uint64_t here), uint64_t here)
{
	static struct files own; /* guarded by the caller */
	char mine[PATH_SIZE], other[PATH_SIZE];
	int before = errno;
	own.count = 0;
	DIR *proc = opendir("/proc");
	bool unknown = !proc || each_gpu("self", note, &own) < 0 || own.count == 0, found = false;
	bool grouped = group("self", mine, sizeof mine);
	for (struct dirent *e; !unknown && !found && (e = readdir(proc));) {
		int pid = 0;
		for (const char *at = e->d_name; *at >= '0' && *at <= '9'; at++)
			pid = pid * 10 + (*at - '0');
		if (!pid || pid == getpid() || counts(pid, here))
			continue;
		if (grouped && group(e->d_name, other, sizeof other) && !kerf_begins(other, mine))
			continue; /* another lease's */
		int open = each_gpu(e->d_name, in_common, &own);
		found = open != 0;
	}
	if (proc)
		closedir(proc);
	errno = before;
	return unknown || found;
}
