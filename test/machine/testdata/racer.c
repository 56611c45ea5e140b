// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// A library that is preloaded into a program. It takes RACER_BYTES of GPU memory next to the program's main thread, in
// the way that RACER_HOW names, and writes to the file RACER_SAID what CUDA said. "Go" is a byte in the FIFO RACER_GO,
// which the program writes; RACER_DELAY_US is the time from then to the allocation.
//
//   thread   another thread takes it after go
//   context  another thread makes a context before the program starts, and takes the memory after go
//   heir     a process that shares the program's descriptors takes it, and dies before the program starts
//   sibling  a process that shares memory and descriptors takes it after go
//   outside  a process that shares nothing takes it before the program starts, and keeps it

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int go = -1, said = -1;
static void *cuda;

static int call_init(void)
{
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	return cuda ? ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0) : -1;
}

static int make_context(void)
{
	void *context;
	int err = call_init();
	return err ? err : ((int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2"))(&context, 0, 0);
}

static int take(void)
{
	uint64_t at;
	return ((int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&at, strtoull(getenv("RACER_BYTES"), NULL, 10));
}

static void say(int result)
{
	if (dprintf(said, "%d\n", result) < 0)
		abort();
}

static void await_go(void)
{
	char byte;
	if (read(go, &byte, 1) != 1)
		abort();
	usleep((useconds_t)atoi(getenv("RACER_DELAY_US")));
}

static void *with_context(void *ready)
{
	int err = make_context();
	if (ready)
		atomic_store((_Atomic int *)ready, 1);
	await_go();
	say(err ? err : take());
	return NULL;
}

static void *without_context(void *unused)
{
	(void)unused;
	await_go();
	int err = make_context();
	say(err ? err : take());
	return NULL;
}

static int sibling(void *unused)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	without_context(unused);
	while (pause() < 0) // until the program ends
		;
	return 0;
}

static void start_sibling(void)
{
	enum { STACK = 1 << 20 };
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED || clone(sibling, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD, NULL) < 0)
		say(-2);
}

// A forked process with the same table of descriptors.
static void take_and_die(void)
{
	long pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		int err = make_context();
		say(err ? err : take());
		_exit(0);
	}
	waitpid((pid_t)pid, NULL, 0);
}

static void take_outside(void)
{
	int ready[2];
	if (pipe2(ready, O_CLOEXEC))
		abort();
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int err = make_context();
		say(err ? err : take());
		close(ready[1]);
		for (;;)
			pause();
	}
	close(ready[1]);
	char byte;
	(void)!read(ready[0], &byte, 1); // until it has said so
	close(ready[0]);
}

__attribute__((constructor)) static void begin(void)
{
	const char *how = getenv("RACER_HOW");
	if (!how)
		return;
	unsetenv("LD_PRELOAD"); // programs that this one starts are others
	go = open(getenv("RACER_GO"), O_RDWR | O_CLOEXEC);
	said = open(getenv("RACER_SAID"), O_WRONLY | O_APPEND | O_CLOEXEC);
	if (go < 0 || said < 0)
		abort();
	pthread_t thread;
	static _Atomic int ready;
	if (!strcmp(how, "thread")) {
		pthread_create(&thread, NULL, without_context, NULL);
	} else if (!strcmp(how, "context")) {
		pthread_create(&thread, NULL, with_context, &ready);
		while (!atomic_load(&ready))
			usleep(50);
	} else if (!strcmp(how, "heir")) {
		take_and_die();
	} else if (!strcmp(how, "sibling")) {
		start_sibling();
	} else if (!strcmp(how, "outside")) {
		take_outside();
	}
}
