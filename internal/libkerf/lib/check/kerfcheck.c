/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * kerfcheck WORD...: a program of CUDA's as the library meets it. Each word is a step, with its arguments behind
 * colons, and most print a line: what the driver answered, then what they read.
 */
#include "kerfcheck.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

struct block blocks[4096];
int held;

static unsigned long long number(const char *text)
{
	return text ? strtoull(text, NULL, 10) : 0;
}

static void context(int device)
{
	CUcontext c;
	CUresult ret = CALL(cuInit)(0);
	if (!ret)
		ret = CALL(cuDevicePrimaryCtxRetain)(&c, device);
	if (!ret)
		ret = CALL(cuCtxSetCurrent)(c);
	if (ret) {
		printf("context %d\n", ret);
		exit(9);
	}
}

static int step_take(const char *family, size_t bytes)
{
	struct block p = { .bytes = bytes };
	const struct family *f = find_family(family);
	p.give = f->give;
	CUresult ret = f->take(&p);
	if (!ret)
		blocks[held++] = p;
	return ret;
}

static void give_one(void)
{
	held--;
	blocks[held].give(&blocks[held]);
}

static void info(void)
{
	size_t free = 0, total = 0, whole = 0;
	CUdevice device = 0;
	CUresult ret = CALL(cuMemGetInfo_v2)(&free, &total);
	CALL(cuCtxGetDevice)(&device);
	CALL(cuDeviceTotalMem_v2)(&whole, device);
	printf("%d %zu %zu %zu\n", ret, free, total, whole);
}

struct hammer {
	pthread_t thread;
	size_t bytes;
	unsigned long long rounds, refused;
	CUcontext context;
	const struct family *family;
};

static void *hammer(void *arg)
{
	struct hammer *h = arg;
	CALL(cuCtxSetCurrent)(h->context);
	for (unsigned long long i = 0; i < h->rounds || !h->rounds; i++) {
		struct block p = { .bytes = h->bytes };
		if (h->family->take(&p))
			h->refused++;
		else
			h->family->give(&p);
	}
	return NULL;
}

static void hammers(int threads, unsigned long long rounds, size_t bytes, const char *family)
{
	struct hammer h[64] = { 0 };
	unsigned long long refused = 0;
	CUcontext c;
	CALL(cuCtxGetCurrent)(&c);
	for (int i = 0; i < threads; i++) {
		h[i] = (struct hammer){ .bytes = bytes, .rounds = rounds, .context = c, .family = find_family(family) };
		pthread_create(&h[i].thread, NULL, hammer, &h[i]);
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(h[i].thread, NULL);
		refused += h[i].refused;
	}
	printf("%llu\n", refused);
}

/* Forks while other threads are inside the library; each child goes through all of its locks. */
static void forks(int many)
{
	struct hammer h[4] = { 0 };
	int bad = 0;
	CUcontext c;
	CUresult (*release)(CUdeviceptr) = CALL(cuMemFree_v2);
	CALL(cuCtxGetCurrent)(&c);
	for (int i = 0; i < 4; i++) {
		h[i] = (struct hammer){ .bytes = 4096, .rounds = 1000, .context = c, .family = find_family("linear") };
		pthread_create(&h[i].thread, NULL, hammer, &h[i]);
	}
	for (int i = 0; i < many; i++) {
		int status = 0;
		pid_t pid = fork();
		if (pid == 0) {
			for (CUdeviceptr p = 1; p < 1000; p++)
				release(p << 21);
			_exit(0);
		}
		bad += pid < 0 || waitpid(pid, &status, 0) != pid || status;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(h[i].thread, NULL);
	printf("%d\n", bad);
}

/* The words up to "end" are the child's. */
static bool parent(void)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		return false;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(8);
	printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	return true;
}

/* Forks a child that lives on until it is killed, and prints its pid. */
static void leave(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(0); /* who started the parent waits for these to close */
		close(1);
		close(2);
		for (;;)
			pause();
	}
	printf("%d\n", (int)pid);
}

static void exec(char **words)
{
	fflush(stdout);
	execv("/proc/self/exe", words);
	exit(7);
}

static void step(char *text)
{
	char *arg[5] = { 0 };
	int n = 0;
	for (char *p = strtok(text, ":"); p && n < 5; p = strtok(NULL, ":"))
		arg[n++] = p;
	const char *word = arg[0];
	if (!strcmp(word, "via")) {
		choose(arg[1]);
	} else if (!strcmp(word, "gpu")) {
		context((int)number(arg[1]));
	} else if (!strcmp(word, "take")) {
		printf("%d\n", step_take(arg[1], number(arg[2])));
	} else if (!strcmp(word, "fill")) {
		int many = 0;
		while (held < 4096 && step_take(arg[1], number(arg[2])) == 0)
			many++;
		printf("%d\n", many);
	} else if (!strcmp(word, "give")) {
		give_one();
	} else if (!strcmp(word, "clear")) {
		while (held)
			give_one();
	} else if (!strcmp(word, "info")) {
		info();
	} else if (!strcmp(word, "hammer")) {
		hammers((int)number(arg[1]), number(arg[2]), number(arg[3]), arg[4] ? arg[4] : "linear");
	} else if (!strcmp(word, "mix")) {
		mix((int)number(arg[1]), (long)number(arg[2]), (unsigned)number(arg[3]), (long)number(arg[4]));
	} else if (!strcmp(word, "forks")) {
		forks((int)number(arg[1]));
	} else if (!strcmp(word, "leave")) {
		leave();
	} else if (!strcmp(word, "wait")) {
		printf("ready\n");
		fflush(stdout);
		if (getchar() == EOF)
			exit(0);
	} else if (!strcmp(word, "nvml")) {
		nvml_memory(arg[1]);
	} else if (!strcmp(word, "deep")) {
		open_deep(arg[1], true);
	} else if (!strcmp(word, "reopen")) {
		reopen();
	} else if (!other_step(arg)) {
		fprintf(stderr, "no step %s\n", word);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	choose("dlsym");
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "end"))
			return 0;
		if (!strcmp(argv[i], "exec"))
			exec(argv + i);
		if (strcmp(argv[i], "fork") != 0) {
			step(argv[i]);
			continue;
		}
		for (bool skip = parent(); skip && i + 1 < argc && strcmp(argv[i], "end") != 0;)
			i++;
	}
	return 0;
}
