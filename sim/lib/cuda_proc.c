/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress: the runtime's way to every other function. It is asked by base name ("cuMemAlloc") with a
 * CUDA version, and answers with the newest form that is not newer than that. Details are those of driver 535.
 */
#include "cuda_core.h"
#include "cuda_proc.h"

#define MAX_FLAGS 3u

/* symbolStatus, as in CUdriverProcAddressQueryResult */
enum { FOUND = 0, UNKNOWN_NAME = 1, VERSION_TOO_OLD = 2 };

/* A name with forms for per-thread streams has only those for a caller that asks for them. */
static int look_up(const char *symbol, void **function, unsigned version, bool per_thread)
{
	const struct cuda_entry *best = NULL;
	bool named = false, forms = false;
	for (const struct cuda_entry *e = cuda_table; e->name && per_thread; e++)
		forms = forms || (e->per_thread && e->since <= gpusim_cuda_version && strcmp(e->name, symbol) == 0);
	for (const struct cuda_entry *e = cuda_table; e->name; e++) {
		if (strcmp(e->name, symbol) != 0 || e->since > gpusim_cuda_version)
			continue;
		named = true;
		if (e->per_thread == forms && (unsigned)e->since <= version && (!best || e->since > best->since))
			best = e;
	}
	*function = best ? best->function : NULL;
	return best ? FOUND : named ? VERSION_TOO_OLD : UNKNOWN_NAME;
}

/* Needs no cuInit: the runtime asks before it initialises anything. What is not found is no error here. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags, int *status)
{
	NEED(symbol && function && flags <= MAX_FLAGS);
	int found = look_up(symbol, function, (unsigned)version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	if (status)
		*status = found;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	void *found;
	int status;
	NEED(function);
	TRY(cuGetProcAddress_v2(symbol, &found, version, flags, &status));
	if (status != FOUND)
		return CUDA_ERROR_NOT_FOUND;
	*function = found;
	return CUDA_SUCCESS;
}
