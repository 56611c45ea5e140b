/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program of a hostile tenant:
 *
 *   orphans MIB N MS N processes take memory and end MS later, one after the other; a child of each, which has its
 *   files,
 *                    lives on. Prints "PID RESULT" for each.
 *   successor PID    starts a child with this PID, which sleeps and uses no GPU. Prints "started", and how the child
 *   ended. raw MIB STEP     takes 64 MiB by the functions that dlsym gives, then the rest by those of the driver's
 *   symbol table.
 *                    Prints how many MiB that is.
 *   contexts DIR LIE takes a context and 3000 MiB, and writes counters for as long as it lives by which a context looks
 *   as if
 *                    it took all of that (LIE large) or 1 MiB (LIE small). Prints "lies". DIR has the region.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region.h"

typedef int init_fn(unsigned), context_fn(void **, unsigned, int), alloc_fn(uint64_t *, size_t);

static void *find(const char *name)
{
	static void *cuda;
	if (!cuda)
		cuda = dlopen("libcuda.so.1", RTLD_NOW);
	void *f = cuda ? dlsym(cuda, name) : NULL;
	if (!f) {
		fprintf(stderr, "no %s\n", name);
		exit(3);
	}
	return f;
}

static int context(void)
{
	void *c;
	int err = ((init_fn *)find("cuInit"))(0);
	return err ? err : ((context_fn *)find("cuCtxCreate_v2"))(&c, 0, 0);
}

static int take(size_t mib)
{
	uint64_t at;
	int err = context();
	return err ? err : ((alloc_fn *)find("cuMemAlloc_v2"))(&at, mib << 20);
}

static void sleep_on(void)
{
	for (;;)
		pause();
}

static void orphans(size_t mib, int n, unsigned ms)
{
	for (int i = 0; i < n; i++) {
		pid_t p = fork();
		if (!p) {
			int result = take(mib);
			if (!fork())
				sleep_on();
			printf("%d %d\n", getpid(), result);
			usleep(ms * 1000);
			_exit(0);
		}
		waitpid(p, NULL, 0);
	}
	sleep_on();
}

static void successor(pid_t pid)
{
	struct clone_args with = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1 };
	long child = syscall(SYS_clone3, &with, sizeof with);
	int status;
	if (child < 0) {
		perror("clone3");
		exit(1);
	}
	if (!child)
		sleep_on();
	puts("started");
	fflush(stdout);
	waitpid((pid_t)child, &status, 0);
	printf("ended by signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* The address of a function by the section headers of its library's file, which no preloaded library changes. */
static void *by_file(const void *near, const char *name)
{
	Dl_info info;
	struct stat st;
	int fd = dladdr(near, &info) ? open(info.dli_fname, O_RDONLY) : -1;
	if (fd < 0 || fstat(fd, &st))
		return NULL;
	const char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (file == MAP_FAILED)
		return NULL;
	const Elf64_Ehdr *head = (const void *)file;
	const Elf64_Shdr *all = (const void *)(file + head->e_shoff);
	for (int i = 0; i < head->e_shnum; i++) {
		const Elf64_Sym *sym = (const void *)(file + all[i].sh_offset);
		const char *text = file + all[all[i].sh_link].sh_offset;
		for (size_t n = all[i].sh_type == SHT_DYNSYM ? all[i].sh_size / sizeof *sym : 0; n--; sym++)
			if (sym->st_value && !strcmp(text + sym->st_name, name))
				return (char *)info.dli_fbase + sym->st_value;
	}
	return NULL;
}

/* An address in the driver's library: the first mapping of its file. */
static void *in_driver(void)
{
	char line[4096];
	void *at = NULL;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && !at && fgets(line, sizeof line, maps))
		if (strstr(line, "/libcuda.so") && sscanf(line, "%p", &at) != 1)
			at = NULL;
	if (maps)
		fclose(maps);
	return at;
}

static void raw(size_t mib, size_t step)
{
	uint64_t at;
	size_t got = 64;
	if (take(got))
		exit(4);
	alloc_fn *alloc = (alloc_fn *)by_file(in_driver(), "cuMemAlloc_v2");
	if (!alloc || alloc == find("cuMemAlloc_v2"))
		exit(5); /* the same function: nothing stands between */
	while (got < mib && !alloc(&at, step << 20))
		got += step;
	printf("%zu\n", got);
	fflush(stdout);
	sleep_on();
}

static void *map(const char *dir, const char *name, size_t size, int mode, int protection)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, mode);
	void *m = fd < 0 ? MAP_FAILED : mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		perror(path);
		exit(6);
	}
	return m;
}

static struct kerf_slot *own_slot(struct kerf_usage *u)
{
	for (int i = 0; i < KERF_SLOTS; i++)
		if ((u->slot[i].owner & ((1 << 22) - 1)) == (uint64_t)getpid())
			return &u->slot[i];
	exit(7);
}

/* The agent reads a context as what the driver lists, less held, plus waiting. It read one where waiting was the size
 * that it had set, or any where it had set none. */
static void contexts(const char *dir, bool large)
{
	const uint64_t mib = 1 << 20;
	if (take(3000))
		exit(4);
	struct kerf_limits *l = map(dir, "limits", sizeof *l, O_RDONLY, PROT_READ);
	struct kerf_usage *u = map(dir, "usage", sizeof *u, O_RDWR, PROT_READ | PROT_WRITE);
	struct kerf_slot *s = own_slot(u);
	sleep(1); /* its context was counted by then */
	uint64_t listed = s->held[0] + l->device[0].overhead;
	puts("lies");
	for (;; usleep(2000)) {
		uint64_t size = l->device[0].context == KERF_UNKNOWN ? 512 * mib : l->device[0].context;
		if (s->waiting[0])
			continue; /* the agent did not read it yet */
		s->held[0] = large ? size : listed + size - mib;
		s->waiting[0] = size;
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && !strcmp(argv[1], "orphans"))
		orphans(strtoul(argv[2], NULL, 10), atoi(argv[3]), (unsigned)atoi(argv[4]));
	else if (argc == 3 && !strcmp(argv[1], "successor"))
		successor(atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "raw"))
		raw(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
	else if (argc == 4 && !strcmp(argv[1], "contexts"))
		contexts(argv[2], !strcmp(argv[3], "large"));
	else
		return 2;
	return 0;
}
