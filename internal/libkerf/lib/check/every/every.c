/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Calls the functions that its input names, one in a line:
 *
 *   WAY NAME BY VERSION FLAGS RESULT WORD...
 *
 * finds NAME by WAY (for proc1 and proc2: asked for as BY), and calls it with the words while the driver answers
 * RESULT. A word is a number in hex, or bK for a block of memory that is empty; K+OFFSET=NUMBER puts a number into it.
 * It says where the function lies that it found, the result, what the driver was called with, and how the first blocks
 * begin then:
 *
 *   SYMBOL FILE RESULT;NAME WORD...;...;=WORD WORD WORD WORD
 */
#include "every.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA(name, params, call, ...) \
	int name params;              \
	static int call_##name(void *f, const uint64_t *v) { (void)v; return ((int(*) params)f)call; }
#define NVML CUDA
#define ASKED(by, since, name, per_thread)
#include "every.def"
#undef CUDA

static const struct function {
	const char *name;
	void *linked;
	int (*call)(void *f, const uint64_t *v);
} functions[] = {
#define CUDA(name, params, call, ...) { #name, (void *)(uintptr_t)name, call_##name },
#include "every.def"
};

static union { uint64_t word[512]; } block[MOST];
static char said[4096];
static bool listening;
static int result;

static void say(uint64_t word)
{
	size_t n = strlen(said);
	for (int i = 0; i < MOST; i++)
		if (word == (uint64_t)(uintptr_t)&block[i]) {
			snprintf(said + n, sizeof said - n, " b%d", i);
			return;
		}
	snprintf(said + n, sizeof said - n, " %llx", (unsigned long long)word);
}

int note(const char *name, int n, const uint64_t *arguments)
{
	if (!listening)
		return 0;
	strncat(said, ";", sizeof said - strlen(said) - 1);
	strncat(said, name, sizeof said - strlen(said) - 1);
	for (int i = 0; i < n; i++)
		say(arguments[i]);
	return result;
}

static void *found(const struct function *f, const char *way, const char *by, int version, uint64_t flags)
{
	static void *libraries[2];
	void **library = &libraries[f->name[0] == 'n'], *got = NULL;
	int status = 0;
	if (!*library)
		*library = dlopen(f->name[0] == 'n' ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_NOW);
	if (!strcmp(way, "linked"))
		return f->linked;
	if (!strcmp(way, "dlsym"))
		return dlsym(*library, f->name);
	if (!strcmp(way, "default"))
		return dlsym(RTLD_DEFAULT, f->name);
	if (!strcmp(way, "proc1"))
		((int (*)(const char *, void **, int, uint64_t))dlsym(*library, "cuGetProcAddress"))(by, &got, version, flags);
	else
		((int (*)(const char *, void **, int, uint64_t, int *))dlsym(*library, "cuGetProcAddress_v2"))(by, &got,
			version, flags, &status);
	return got;
}

static void put(const char *word, uint64_t *v, int *n)
{
	unsigned at, offset;
	unsigned long long value;
	if (sscanf(word, "b%u", &at) == 1 && at < MOST) {
		v[(*n)++] = (uint64_t)(uintptr_t)&block[at];
	} else if (sscanf(word, "%u+%u=%llx", &at, &offset, &value) == 3 && at < MOST) {
		memcpy((char *)&block[at] + offset, &value, sizeof value);
	} else if (*n < MOST) {
		v[(*n)++] = strtoull(word, NULL, 16);
	}
}

static void try(const struct function *f, const char *way, const char *by, int version, uint64_t flags, char **words)
{
	uint64_t v[MOST + 1] = { 0 };
	int n = 0;
	Dl_info at = { 0 };
	void *here = found(f, way, by, version, flags);
	if (!here || !dladdr(here, &at)) {
		printf("none none 0\n");
		return;
	}
	memset(block, 0, sizeof block);
	for (int i = 0; words[i]; i++)
		put(words[i], v, &n);
	said[0] = 0;
	listening = true;
	int ret = f->call(here, v);
	listening = false;
	const char *slash = strrchr(at.dli_fname, '/');
	printf("%s %s %d%s;=%llx %llx %llx %llx\n", at.dli_sname ? at.dli_sname : "none", slash ? slash + 1 : at.dli_fname,
	       ret, said,
	       (unsigned long long)block[0].word[0], (unsigned long long)block[0].word[1],
	       (unsigned long long)block[1].word[0],
	       (unsigned long long)block[1].word[1]);
}

int main(void)
{
	char line[1024];
	setvbuf(stdout, NULL, _IOLBF, 0); /* a call that ends the program is the one after what was said last */
	while (fgets(line, sizeof line, stdin)) {
		char *word[6 + 2 * MOST + 1] = { 0 };
		int n = 0;
		for (char *w = strtok(line, " \n"); w && n < 6 + 2 * MOST; w = strtok(NULL, " \n"))
			word[n++] = w;
		const struct function *f = NULL;
		for (size_t i = 0; n >= 6 && i < sizeof functions / sizeof functions[0]; i++)
			if (!strcmp(functions[i].name, word[1]))
				f = &functions[i];
		if (!f)
			return 2;
		result = atoi(word[5]);
		try(f, word[0], word[2], atoi(word[3]), strtoull(word[4], NULL, 10), word + 6);
	}
	return 0;
}
