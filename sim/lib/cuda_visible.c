/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES. They choose among the GPUs that the process can reach, and can
 * add none to them.
 */
#include "cuda_core.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

/* CUDA's own order puts the fastest first by a measure that is not documented; multiprocessors weighted by
 * the architecture's age stands for it. Equal GPUs stay in PCI order. */
static void fastest_first(struct device *list, int n)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0; j--) {
			struct device *a = &list[j - 1], *b = &list[j], swap;
			if (a->sms * a->cc_major >= b->sms * b->cc_major)
				break;
			swap = *a;
			*a = *b;
			*b = swap;
		}
}

/* One entry: an index, or "GPU-" or "MIG-" with as much of a UUID as makes it unique. -1: none, or more than one. */
static int resolve(const struct device *list, int n, const char *entry, size_t len)
{
	int found = -1;
	if (len > 4 && (strncasecmp(entry, "GPU-", 4) == 0 || strncasecmp(entry, "MIG-", 4) == 0)) {
		for (int i = 0; i < n; i++) {
			if (strncasecmp(list[i].uuid, entry, len) != 0)
				continue;
			if (found >= 0)
				return -1;
			found = i;
		}
		return found;
	}
	if (len == 0 || len > 4)
		return -1;
	found = 0;
	for (size_t i = 0; i < len; i++) {
		if (!isdigit((unsigned char)entry[i]))
			return -1;
		found = found * 10 + (entry[i] - '0');
	}
	return found < n ? found : -1;
}

int cuda_select(struct device *list, int n, const char *order, const char *visible)
{
	struct device chosen[GPUSIM_MAX_MINORS];
	bool taken[GPUSIM_MAX_MINORS] = { false };
	int count = 0;
	if (!order || strcmp(order, "PCI_BUS_ID") != 0)
		fastest_first(list, n);
	if (!visible)
		return n;
	/* The list ends at the first entry that is invalid; a second mention of a GPU counts as that. */
	for (const char *p = visible;; p++) {
		p += strspn(p, " \t");
		size_t whole = strcspn(p, ","), len = whole;
		while (len && isspace((unsigned char)p[len - 1]))
			len--;
		int i = resolve(list, n, p, len);
		if (i < 0 || taken[i])
			break;
		taken[i] = true;
		chosen[count++] = list[i];
		p += whole;
		if (*p == 0)
			break;
	}
	memcpy(list, chosen, (size_t)count * sizeof list[0]);
	return count;
}
