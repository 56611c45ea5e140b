/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The command line, and the two commands that describe the driver.
 */
#include "kitload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void print_failure(struct gpu *g, CUresult ret)
{
	const char *name = "no driver";
	char text[400];
	size_t n = 0;
	if (ret && (!g->error_name || g->error_name(ret, &name) || !name))
		name = "unnamed";
	for (const char *c = g->failed ? g->failed : ""; *c && n < sizeof text - 1; c++)
		text[n++] = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? ' ' : *c;
	text[n] = 0;
	printf("{\"failed\":\"%s\",\"call\":\"%s\"}\n", name, text);
}

CUresult do_info(struct gpu *g, const struct arguments *a)
{
	char name[128] = "";
	int version = 0;
	bool kernels = false;
	size_t left, total;
	(void)a;
	CALL(g, version(&version));
	CALL(g, device_name(name, sizeof name, g->device));
	CALL(g, mem_info(&left, &total));
	if (!load_kernels(g)) { /* without kernels, other commands still work */
		CUresult ret = kernels_run(g, &kernels);
		if (ret)
			return ret;
	}
	printf("{\"cuda\":%d,\"name\":\"%s\",\"processors\":%d,"
		"\"total_bytes\":%zu,\"free_bytes\":%zu,\"ptx\":\"%s\",\"jit_ns\":%llu,\"kernels\":%s}\n",
	       version, name, g->processors, total, left, g->ptx ? g->ptx : "none", (unsigned long long)g->jit_ns,
	       kernels ? "true" : "false");
	return CUDA_SUCCESS;
}

/* The address belongs to an exported function. libkerf's own are exported under the driver's names as well. */
static bool exported(void *f)
{
	Dl_info at;
	return dladdr(f, &at) && at.dli_sname && at.dli_saddr == f && strncmp(at.dli_sname, "cu", 2) == 0;
}

/* For each name of the file: does cuGetProcAddress give a function that dlsym gives? */
CUresult do_abi(struct gpu *g, const struct arguments *a)
{
	CUresult (*find)(const char *, void **, int, cuuint64_t, int *) = NULL;
	static const int versions[] = { 11000, 11040, 12000, 12080, 13000 };
	unsigned asked = 0, found = 0, other = 0;
	char name[200];
	void *symbol = dlsym(g->library, "cuGetProcAddress_v2"), *f;
	FILE *names = fopen(a->names, "re");
	memcpy(&find, &symbol, sizeof find);
	if (!names || !find) {
		g->failed = names ? "cuGetProcAddress_v2 is missing" : "the file of names cannot be read";
		return CUDA_ERROR_NOT_FOUND;
	}
	while (fscanf(names, "%199s", name) == 1)
		for (size_t v = 0; v < sizeof versions / sizeof versions[0]; v++)
			for (cuuint64_t flags = 0; flags < 3; flags++) {
				int status;
				asked++;
				f = NULL;
				if (find(name, &f, versions[v], flags, &status) || !f)
					continue;
				found++;
				if (!exported(f)) {
					other++;
					printf("{\"other\":\"%s\",\"version\":%d,\"flags\":%d}\n", name, versions[v], (int)flags);
				}
			}
	fclose(names);
	printf("{\"asked\":%u,\"found\":%u,\"others\":%u}\n", asked, found, other);
	return CUDA_SUCCESS;
}

static uint64_t bytes(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	return strncmp(end, "GiB", 3) == 0 ? n << 30 : strncmp(end, "MiB", 3) == 0 ? n << 20 : strncmp(end, "KiB", 3) == 0
		? n << 10 : n;
}

static bool parse(int argc, char **argv, struct arguments *a)
{
	*a = (struct arguments){ .api = "linear", .kind = "train", .names = "", .seconds = 1, .step = 256 << 20 };
	if (argc < 2)
		return false;
	a->command = argv[1];
	for (int i = 2; i + 1 < argc; i += 2) {
		const char *v = argv[i + 1];
		if (strcmp(argv[i], "--api") == 0)
			a->api = v;
		else if (strcmp(argv[i], "--kind") == 0)
			a->kind = v;
		else if (strcmp(argv[i], "--names") == 0)
			a->names = v;
		else if (strcmp(argv[i], "--alloc") == 0)
			a->alloc = bytes(v);
		else if (strcmp(argv[i], "--step") == 0)
			a->step = bytes(v);
		else if (strcmp(argv[i], "--every-ms") == 0)
			a->every_ns = strtoull(v, NULL, 10) * 1000000u;
		else if (strcmp(argv[i], "--seconds") == 0)
			a->seconds = strtod(v, NULL);
		else if (strcmp(argv[i], "--count") == 0)
			a->count = (unsigned)strtoul(v, NULL, 10);
		else if (strcmp(argv[i], "--gpu") == 0)
			a->device = atoi(v);
		else
			return false;
	}
	return argc % 2 == 0 && find_family(a->api);
}

/* So many processes do the same; none of them has touched the driver before. Returns only in the children. */
static void multiply(unsigned n)
{
	int status, worst = 0;
	for (unsigned i = 0; i < n; i++)
		if (fork() == 0)
			return;
	while (wait(&status) > 0)
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			worst = 9;
	exit(worst);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		CUresult (*command)(struct gpu *g, const struct arguments *a);
	} commands[] = { { "info", do_info }, { "abi", do_abi }, { "fill", do_fill }, { "grow", do_grow },
			 { "stages", do_stages }, { "cost", do_cost }, { "work", do_work } };
	static struct gpu g;
	struct arguments a;
	if (!parse(argc, argv, &a)) {
		fputs("usage: kitload info|abi|fill|grow|stages|cost|work [--flag value]...; the kit starts it\n", stderr);
		return 2;
	}
	if (strcmp(a.command, "grow") == 0 && a.count)
		multiply(a.count);
	CUresult ret = CUDA_ERROR_NOT_INITIALIZED;
	if (open_driver(&g))
		ret = open_gpu(&g, a.device);
	for (size_t i = 0; i < sizeof commands / sizeof commands[0] && !ret; i++)
		if (strcmp(a.command, commands[i].name) == 0)
			ret = commands[i].command(&g, &a);
	if (ret)
		print_failure(&g, ret);
	fflush(stdout);
	return ret ? 9 : 0;
}
