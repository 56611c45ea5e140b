/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * MIG devices: what a process sees of a GPU in MIG mode. It sees the instances whose capability nodes it can reach, and
 * uses one of them.
 */
#include "cuda_core.h"

#include <stdio.h>

#define MAX_LIST 32

static int ask(const struct device *d, uint32_t op, uint64_t arg, uint64_t *vals, size_t n, char *text, size_t size)
{
	const uint64_t args[GPUSIM_NARGS] = { arg };
	struct gpusim_reply reply = { .vals = vals, .max_vals = n, .text = text, .max_text = size };
	return gpusim_call(d->conn, op, args, NULL, &reply);
}

static bool in_mig_mode(const struct device *d)
{
	uint64_t mode[2] = { 0 };
	return ask(d, GPUSIM_OP_MIG_MODE, 0, mode, 2, NULL, 0) == GPUSIM_OK && mode[0];
}

/* The instances of one GPU, at most max of them. */
static int instances(const struct device *gpu, struct device *out, int max)
{
	uint64_t v[1 + GPUSIM_MIG_VALS * MAX_LIST] = { 0 }, p[4] = { 0 };
	char uuids[GPUSIM_MAX_TEXT], profile[96], part[8];
	int count = 0;
	if (ask(gpu, GPUSIM_OP_MIG_INSTANCES, 1, v, sizeof v / sizeof *v, uuids, sizeof uuids) != GPUSIM_OK)
		return 0;
	for (uint64_t i = 0; i < v[0] && i < MAX_LIST && count < max; i++) {
		const uint64_t *w = v + 1 + GPUSIM_MIG_VALS * i;
		struct device *d = &out[count];
		*d = *gpu;
		if (!gpusim_line(uuids, (unsigned)i, d->uuid, sizeof d->uuid) ||
		    ask(gpu, GPUSIM_OP_MIG_PROFILE, w[6], p, 4, profile, sizeof profile) != GPUSIM_OK)
			continue;
		d->instance = GPUSIM_MIG_DEVICE(w[0], w[4]);
		d->total = w[5];
		d->reserved = 0;
		d->sms = p[2] ? p[3] * w[8] / p[2] : p[3];
		part[0] = 0;
		if (w[8] < p[2])
			snprintf(part, sizeof part, "%uc.", (unsigned)(w[8] % 100));
		snprintf(d->name, sizeof d->name, "%.56s MIG %s%.24s", gpu->name, part, profile);
		count++;
	}
	return count;
}

int cuda_instances(struct device *list, int n)
{
	struct device out[GPUSIM_MAX_MINORS];
	int count = 0;
	for (int i = 0; i < n && count < GPUSIM_MAX_MINORS; i++) {
		if (in_mig_mode(&list[i]))
			count += instances(&list[i], &out[count], GPUSIM_MAX_MINORS - count);
		else
			out[count++] = list[i];
	}
	memcpy(list, out, (size_t)count * sizeof list[0]);
	return count;
}

int cuda_one_instance(struct device *list, int n)
{
	bool had = false;
	int count = 0;
	for (int i = 0; i < n; i++) {
		if (list[i].instance && had)
			continue;
		had = had || list[i].instance;
		list[count++] = list[i];
	}
	return count;
}
