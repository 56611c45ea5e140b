/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The command line of the simulated nvidia-smi. It takes -L, -q, --query-gpu, --query-compute-apps, -c, dmon, pmon,
 * compute-policy and --version, and rejects everything else. NVML has no call for compute-policy, so gpusim does that
 * part.
 */
#include "smi.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY "nvidia-smi-compute-policy"

int smi_fail(nvmlReturn_t ret)
{
	if (ret == NVML_ERROR_DRIVER_NOT_LOADED || ret == NVML_ERROR_UNINITIALIZED)
		puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
		     "NVIDIA driver is installed and running.");
	else
		printf("Failed to initialize NVML: %s\n", nvmlErrorString(ret));
	return ret == NVML_ERROR_DRIVER_NOT_LOADED ? EXIT_NO_DRIVER : (int)ret;
}

static int usage(const char *word)
{
	fprintf(stderr,
		"nvidia-smi: %s is not simulated; write -L, -q, --query-gpu, --query-compute-apps, -c, dmon, pmon, "
		"compute-policy or --version\n",
		word);
	return EXIT_USAGE;
}

static nvmlReturn_t find(const char *id, nvmlDevice_t *device)
{
	char *end;
	unsigned long index = strtoul(id, &end, 10);
	if (*id && !*end)
		return nvmlDeviceGetHandleByIndex_v2((unsigned)index, device);
	if (strchr(id, ':'))
		return nvmlDeviceGetHandleByPciBusId_v2(id, device);
	return nvmlDeviceGetHandleByUUID(id, device);
}

/* Finds what -i names. All GPUs without it; a lost one is left out then. */
static int choose(const char *ids, struct gpus *gpus)
{
	unsigned all = 0;
	nvmlReturn_t ret = nvmlDeviceGetCount_v2(&all);
	if (ret != NVML_SUCCESS)
		return smi_fail(ret);
	for (unsigned i = 0; !ids && i < all && gpus->count < MAX_GPUS; i++) {
		gpus->index[gpus->count] = i;
		ret = nvmlDeviceGetHandleByIndex_v2(i, &gpus->device[gpus->count]);
		if (ret == NVML_SUCCESS)
			gpus->count++;
		else
			printf("Unable to determine the device handle for GPU%u: %s\n", i, nvmlErrorString(ret));
	}
	char *copy = strdup(ids ? ids : ""), *rest = copy;
	for (char *id; ids && copy && (id = strsep(&rest, ",")) && gpus->count < MAX_GPUS; gpus->count++) {
		ret = find(id, &gpus->device[gpus->count]);
		if (ret == NVML_SUCCESS)
			ret = nvmlDeviceGetIndex(gpus->device[gpus->count], &gpus->index[gpus->count]);
		if (ret != NVML_SUCCESS) {
			printf("No devices were found\n");
			free(copy);
			return ret == NVML_ERROR_GPU_IS_LOST ? (int)ret : EXIT_NO_DEVICE;
		}
	}
	free(copy);
	if (gpus->count)
		return 0;
	puts("No devices were found");
	return EXIT_NO_DEVICE;
}

/* Time slices: the other program in this folder. */
static int policy(char **argv)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof POLICY - 1);
	if (n > 0) {
		path[n] = 0;
		char *slash = strrchr(path, '/');
		strcpy(slash ? slash + 1 : path, POLICY);
		argv[0] = path;
		execv(path, argv);
	}
	fprintf(stderr, "nvidia-smi: compute-policy: %s\n", strerror(errno));
	return 1;
}

/* An option that takes a value: "--name=value", or the next word. NULL: another option, or no value. */
static const char *value_of(int argc, char **argv, int *i, const char *name)
{
	size_t n = strlen(name);
	if (strncmp(argv[*i], name, n) == 0 && argv[*i][n] == '=')
		return argv[*i] + n + 1;
	if (strcmp(argv[*i], name) != 0 || *i + 1 >= argc)
		return NULL;
	return argv[++*i];
}

static bool format(const char *text, struct options *o)
{
	o->csv = strstr(text, "csv") != NULL;
	o->header = !strstr(text, "noheader");
	o->units = !strstr(text, "nounits");
	return o->csv;
}

enum command { TABLE, LIST, REPORT, QUERY, MODE, DMON, PMON, VERSION };

static const char *first(int argc, char **argv, int *i, const char *a, const char *b)
{
	const char *v = value_of(argc, argv, i, a);
	return v ? v : value_of(argc, argv, i, b);
}

/* Reads one option; false: it is unknown or lacks its value. */
static bool option(int argc, char **argv, int *i, enum command *c, struct options *o, const char **mode)
{
	const char *word = argv[*i], *v;
	bool monitor = *c == DMON || *c == PMON;
	if (strcmp(word, "-L") == 0 || strcmp(word, "--list-gpus") == 0) {
		*c = LIST;
	} else if (strcmp(word, "-q") == 0 || strcmp(word, "--query") == 0) {
		*c = REPORT;
	} else if (strcmp(word, "--version") == 0) {
		*c = VERSION;
	} else if ((v = first(argc, argv, i, "-i", "--id"))) {
		o->ids = v;
	} else if (monitor && (v = value_of(argc, argv, i, "-c"))) {
		o->rounds = (unsigned)strtoul(v, NULL, 10);
	} else if (monitor && (v = value_of(argc, argv, i, "-d"))) {
		o->seconds = (unsigned)strtoul(v, NULL, 10);
	} else if (monitor && value_of(argc, argv, i, "-s")) {
		; /* all columns are shown always */
	} else if ((v = first(argc, argv, i, "-c", "--compute-mode"))) {
		*c = MODE;
		*mode = v;
	} else if ((v = first(argc, argv, i, "-d", "--display"))) {
		o->types = v;
	} else if ((v = value_of(argc, argv, i, "--query-gpu"))) {
		*c = QUERY;
		o->fields = v;
	} else if ((v = value_of(argc, argv, i, "--query-compute-apps"))) {
		*c = QUERY;
		o->fields = v;
		o->apps = true;
	} else if ((v = value_of(argc, argv, i, "--format"))) {
		return format(v, o);
	} else {
		return false;
	}
	return true;
}

static int run(enum command c, const struct options *o, const char *mode)
{
	struct gpus gpus = { .count = 0 };
	int status = choose(o->ids, &gpus);
	if (status)
		return status;
	switch (c) {
	case LIST:
		return smi_list(&gpus);
	case REPORT:
		return smi_report(&gpus, o);
	case QUERY:
		return o->apps ? smi_apps(&gpus, o) : smi_query(&gpus, o);
	case MODE:
		return smi_compute_mode(&gpus, mode);
	case DMON:
		return smi_dmon(&gpus, o);
	case PMON:
		return smi_pmon(&gpus, o);
	case TABLE:
	case VERSION:
		break;
	}
	return smi_table(&gpus);
}

int main(int argc, char **argv)
{
	struct options o = { .header = true, .units = true, .seconds = 1 };
	enum command c = TABLE;
	const char *mode = NULL;
	int i = 1;
	if (argc > 1 && strcmp(argv[1], "compute-policy") == 0)
		return policy(argv);
	if (argc > 1 && (strcmp(argv[1], "dmon") == 0 || strcmp(argv[1], "pmon") == 0)) {
		c = argv[1][0] == 'd' ? DMON : PMON;
		i = 2;
	}
	for (; i < argc; i++)
		if (!option(argc, argv, &i, &c, &o, &mode))
			return usage(i < argc ? argv[i] : "an option without its value");
	if (c == QUERY && !o.csv) {
		puts("\"--format\" switch is missing. Please run 'nvidia-smi --help-query-gpu' for details.");
		return EXIT_USAGE;
	}
	nvmlReturn_t ret = nvmlInit_v2();
	if (ret != NVML_SUCCESS)
		return smi_fail(ret);
	int status = c == VERSION ? smi_version() : run(c, &o, mode); /* versions need no GPU */
	nvmlShutdown();
	return status;
}
