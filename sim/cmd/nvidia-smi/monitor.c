/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * dmon and pmon: a line of numbers for each GPU or process, again and again.
 */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_APPS 1024
#define HEADER_EVERY 20 /* rounds */

/* A whole number, or "-" for what the GPU does not tell. */
static const char *plain(nvmlDevice_t device, const char *name, char value[VALUE])
{
	const char *unit;
	if (!smi_value(device, name, value, &unit) || value[0] == '[')
		strcpy(value, "-");
	value[strcspn(value, ".")] = 0;
	return value;
}

int smi_dmon(const struct gpus *gpus, const struct options *o)
{
	char v[8][VALUE];
	for (unsigned round = 0; !o->rounds || round < o->rounds; round++) {
		if (round)
			sleep(o->seconds);
		if (round % HEADER_EVERY == 0)
			puts("# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk\n"
			     "# Idx      W      C      C      %      %      %      %    MHz    MHz");
		for (unsigned i = 0; i < gpus->count; i++) {
			nvmlDevice_t g = gpus->device[i];
			printf("%5u %6s %6s %6s %6s %6s %6s %6s %6s %6s\n", gpus->index[i], plain(g, "power.draw", v[0]),
			       plain(g, "temperature.gpu", v[1]), "-", plain(g, "utilization.gpu", v[2]),
			       plain(g, "utilization.memory", v[3]), "-", "-", plain(g, "clocks.current.memory", v[4]),
			       plain(g, "clocks.current.sm", v[5]));
		}
		fflush(stdout);
	}
	return 0;
}

/* The newest sample of a process, NULL if there is none. */
static const nvmlProcessUtilizationSample_t *newest(const nvmlProcessUtilizationSample_t *all, unsigned n, unsigned pid)
{
	const nvmlProcessUtilizationSample_t *found = NULL;
	for (unsigned i = 0; i < n; i++)
		if (all[i].pid == pid && (!found || all[i].timeStamp > found->timeStamp))
			found = &all[i];
	return found;
}

static void pmon_gpu(nvmlDevice_t device, unsigned index, unsigned long long since)
{
	static nvmlProcessInfo_t list[MAX_APPS];
	static nvmlProcessUtilizationSample_t samples[MAX_APPS];
	unsigned count = MAX_APPS, used = MAX_APPS;
	char name[VALUE], sm[16], mem[16];
	if (nvmlDeviceGetProcessUtilization(device, samples, &used, since) != NVML_SUCCESS)
		used = 0;
	if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list) != NVML_SUCCESS || count == 0) {
		printf("%5u %10s %5s %6s %6s %6s %6s    %s\n", index, "-", "-", "-", "-", "-", "-", "-");
		return;
	}
	for (unsigned i = 0; i < count; i++) {
		const nvmlProcessUtilizationSample_t *s = newest(samples, used, list[i].pid);
		snprintf(sm, sizeof sm, "-");
		snprintf(mem, sizeof mem, "-");
		if (s) {
			snprintf(sm, sizeof sm, "%u", s->smUtil);
			snprintf(mem, sizeof mem, "%u", s->memUtil);
		}
		if (nvmlSystemGetProcessName(list[i].pid, name, sizeof name) != NVML_SUCCESS)
			strcpy(name, "-");
		const char *base = strrchr(name, '/');
		printf("%5u %10u %5s %6s %6s %6s %6s    %s\n", index, list[i].pid, "C", sm, mem, "-", "-",
		       base ? base + 1 : name);
	}
}

int smi_pmon(const struct gpus *gpus, const struct options *o)
{
	for (unsigned round = 0; !o->rounds || round < o->rounds; round++) {
		if (round)
			sleep(o->seconds);
		if (round % HEADER_EVERY == 0)
			puts("# gpu         pid  type     sm    mem    enc    dec    command\n"
			     "# Idx           #   C/G      %      %      %      %    name");
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		unsigned long long since = ((unsigned long long)now.tv_sec - 1) * 1000000ULL;
		for (unsigned i = 0; i < gpus->count; i++)
			pmon_gpu(gpus->device[i], gpus->index[i], since);
		fflush(stdout);
	}
	return 0;
}
