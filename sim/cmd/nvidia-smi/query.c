/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * --query-gpu and --query-compute-apps: a table of values by commas.
 */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 64
#define MAX_APPS 1024

struct columns {
	char *copy;
	const char *name[MAX_FIELDS];
	int count;
};

static bool split(const char *list, struct columns *c)
{
	*c = (struct columns){ .copy = strdup(list) };
	char *rest = c->copy;
	for (char *word; c->copy && (word = strsep(&rest, ","));) {
		word += strspn(word, " ");
		if (!*word || c->count == MAX_FIELDS)
			return false;
		c->name[c->count++] = word;
	}
	return c->count > 0;
}

static void cell(int column, const char *value, const char *unit)
{
	printf("%s%s%s%s", column ? ", " : "", value, unit ? " " : "", unit ? unit : "");
}

/* The unit is part of a column's name. A GPU that does not tell its value has none, so ask each. */
static const char *unit_of(const struct gpus *gpus, const char *name)
{
	char value[VALUE];
	const char *unit = NULL;
	for (unsigned i = 0; i < gpus->count && !unit; i++)
		smi_value(gpus->device[i], name, value, &unit);
	return unit;
}

static int query_columns(const struct gpus *gpus, const struct options *o, const struct columns *c)
{
	char value[VALUE];
	const char *unit;
	for (int i = 0; i < c->count; i++) {
		if (gpus->count && !smi_value(gpus->device[0], c->name[i], value, &unit)) {
			printf("Field \"%s\" is not a valid field to query.\n\n", c->name[i]);
			return EXIT_USAGE;
		}
	}
	for (int i = 0; o->header && i < c->count; i++) {
		unit = unit_of(gpus, c->name[i]);
		printf("%s%s%s%s%s", i ? ", " : "", c->name[i], unit ? " [" : "", unit ? unit : "", unit ? "]" : "");
	}
	if (o->header)
		putchar('\n');
	for (unsigned g = 0; g < gpus->count; g++) {
		for (int i = 0; i < c->count; i++) {
			smi_value(gpus->device[g], c->name[i], value, &unit);
			cell(i, value, o->units ? unit : NULL);
		}
		putchar('\n');
	}
	return 0;
}

int smi_query(const struct gpus *gpus, const struct options *o)
{
	struct columns c;
	int status = EXIT_USAGE;
	if (split(o->fields, &c))
		status = query_columns(gpus, o, &c);
	else
		printf("\"%s\" is not a list of fields to query.\n", o->fields);
	free(c.copy);
	return status;
}

/* The columns of --query-compute-apps; false: no such column. */
static bool app_value(nvmlDevice_t device, const nvmlProcessInfo_t *p, const char *name, char value[VALUE],
		      const char **unit)
{
	*unit = NULL;
	if (strcmp(name, "gpu_uuid") == 0 || strcmp(name, "gpu_name") == 0 || strcmp(name, "gpu_bus_id") == 0 ||
	    strcmp(name, "gpu_serial") == 0 || strcmp(name, "timestamp") == 0)
		return smi_value(device, name, value, unit);
	if (strcmp(name, "pid") == 0) {
		snprintf(value, VALUE, "%u", p->pid);
	} else if (strcmp(name, "process_name") == 0 || strcmp(name, "name") == 0) {
		if (nvmlSystemGetProcessName(p->pid, value, VALUE) != NVML_SUCCESS)
			snprintf(value, VALUE, "[Not Found]");
	} else if (strcmp(name, "used_memory") == 0 || strcmp(name, "used_gpu_memory") == 0) {
		if (p->usedGpuMemory == (unsigned long long)NVML_VALUE_NOT_AVAILABLE)
			return snprintf(value, VALUE, "[N/A]"), true;
		snprintf(value, VALUE, "%llu", p->usedGpuMemory >> 20);
		*unit = "MiB";
	} else {
		return false;
	}
	return true;
}

static int apps_of(nvmlDevice_t device, const struct options *o, const struct columns *c)
{
	static nvmlProcessInfo_t list[MAX_APPS];
	unsigned count = MAX_APPS;
	char value[VALUE];
	const char *unit;
	nvmlReturn_t ret = nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list);
	if (ret != NVML_SUCCESS)
		return smi_fail(ret);
	for (unsigned p = 0; p < count; p++) {
		for (int i = 0; i < c->count; i++) {
			app_value(device, &list[p], c->name[i], value, &unit);
			cell(i, value, o->units ? unit : NULL);
		}
		putchar('\n');
	}
	return 0;
}

int smi_apps(const struct gpus *gpus, const struct options *o)
{
	struct columns c;
	static const nvmlProcessInfo_t sample = { .pid = 1 };
	char value[VALUE];
	const char *unit;
	int status = split(o->fields, &c) ? 0 : EXIT_USAGE;
	for (int i = 0; gpus->count && i < c.count && status == 0; i++) {
		if (!app_value(gpus->device[0], &sample, c.name[i], value, &unit))
			status = EXIT_USAGE;
		else if (o->header)
			printf("%s%s%s", i ? ", " : "", c.name[i], unit ? " [MiB]" : "");
	}
	if (status)
		printf("\"%s\" is not a list of fields to query.\n", o->fields);
	else if (o->header)
		putchar('\n');
	for (unsigned g = 0; g < gpus->count && status == 0; g++)
		status = apps_of(gpus->device[g], o, &c);
	free(c.copy);
	return status;
}
