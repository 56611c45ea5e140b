/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Values that the CUDA runtime keeps in a context, by key. The driver calls their destructors when the context ends.
 */
#include "cuda_export.h"

#include <stdlib.h>

struct stored {
	CUcontext context;
	void *key, *value;
	cuda_storage_end end;
	struct stored *next;
};

static struct stored *all; /* guarded by cuda_mu */

/* With cuda_mu held. */
static struct stored **find(CUcontext context, const void *key)
{
	struct stored **at = &all;
	while (*at && ((*at)->context != context || (*at)->key != key))
		at = &(*at)->next;
	return at;
}

static CUresult named(CUcontext *context)
{
	return *context ? cuda_enter() : cuda_current(context);
}

CUresult cuda_storage_put(CUcontext context, void *key, void *value, cuda_storage_end end)
{
	TRY(named(&context));
	struct stored *s = malloc(sizeof *s);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&cuda_mu);
	bool there = *find(context, key);
	if (!there) {
		*s = (struct stored){ context, key, value, end, all };
		all = s;
	}
	pthread_mutex_unlock(&cuda_mu);
	if (there)
		free(s);
	NEED(!there);
	return CUDA_SUCCESS;
}

CUresult cuda_storage_get(void **value, CUcontext context, void *key)
{
	NEED(value);
	TRY(named(&context));
	pthread_mutex_lock(&cuda_mu);
	const struct stored *s = *find(context, key);
	*value = s ? s->value : NULL;
	pthread_mutex_unlock(&cuda_mu);
	NEED(s);
	return CUDA_SUCCESS;
}

CUresult cuda_storage_delete(CUcontext context, void *key)
{
	TRY(named(&context));
	pthread_mutex_lock(&cuda_mu);
	struct stored **at = find(context, key), *s = *at;
	if (s)
		*at = s->next;
	pthread_mutex_unlock(&cuda_mu);
	free(s);
	NEED(s);
	return CUDA_SUCCESS;
}

void cuda_storage_drop(CUcontext context)
{
	for (;;) {
		pthread_mutex_lock(&cuda_mu);
		struct stored **at = &all, *s;
		while (*at && (*at)->context != context)
			at = &(*at)->next;
		s = *at;
		if (s)
			*at = s->next;
		pthread_mutex_unlock(&cuda_mu);
		if (!s)
			return;
		if (s->end)
			s->end(context, s->key, s->value);
		free(s);
	}
}
