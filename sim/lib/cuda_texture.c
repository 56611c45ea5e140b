/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Texture and surface objects: what they were made of.
 */
#include "cuda_core.h"

#include <stdlib.h>

/* CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC and CUDA_RESOURCE_VIEW_DESC. */
struct resource {
	int type; /* 0: array, 1: mipmapped array, 2: linear, 3: pitched */
	union {
		void *of;
		struct { CUdeviceptr ptr; int format; unsigned channels; size_t bytes; } linear;
		struct { CUdeviceptr ptr; int format; unsigned channels; size_t width, height, pitch; } pitched;
		int reserved[32];
	};
	unsigned flags;
};
struct texture { int words[26]; };
struct view { int words[28]; };
_Static_assert(sizeof(struct resource) == 144, "CUDA_RESOURCE_DESC");

struct object {
	uint64_t id; /* what the program has; never used again */
	bool surface, viewed;
	struct resource resource;
	struct texture texture;
	struct view view;
	struct object *next;
};

static struct object *objects; /* guarded by cuda_mu */
static uint64_t last;

static CUresult check(const struct resource *r)
{
	NEED(r && r->type >= 0 && r->type <= 3 && r->flags == 0);
	if (r->type < 2)
		return r->of ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	return r->type == 2 ? cuda_touch(r->linear.ptr, r->linear.bytes) :
			      cuda_touch(r->pitched.ptr, r->pitched.pitch * r->pitched.height);
}

static CUresult create(uint64_t *id, const struct resource *r, const struct texture *t, const struct view *v,
	bool surface)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(id && (t || surface) && (!surface || (r && r->type == 0)));
	TRY(check(r));
	struct object *o = calloc(1, sizeof *o);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*o = (struct object){ .surface = surface, .viewed = v, .resource = *r };
	if (t)
		o->texture = *t;
	if (v)
		o->view = *v;
	pthread_mutex_lock(&cuda_mu);
	*id = o->id = ++last;
	o->next = objects;
	objects = o;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

/* Copies an object, and with drop ends it. */
static CUresult find(uint64_t id, bool surface, struct object *out, bool drop)
{
	TRY(cuda_enter());
	pthread_mutex_lock(&cuda_mu);
	struct object **at = &objects, *o;
	while (*at && ((*at)->id != id || (*at)->surface != surface))
		at = &(*at)->next;
	o = *at;
	if (o)
		*out = *o;
	if (o && drop)
		*at = o->next;
	pthread_mutex_unlock(&cuda_mu);
	if (drop)
		free(o);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuTexObjectCreate, (uint64_t *id, const struct resource *r, const struct texture *t, const struct view *v))
{
	return create(id, r, t, v, false);
}

API(cuTexObjectDestroy, (uint64_t id))
{
	struct object o;
	return find(id, false, &o, true);
}

API(cuTexObjectGetResourceDesc, (struct resource *out, uint64_t id))
{
	struct object o;
	NEED(out);
	TRY(find(id, false, &o, false));
	*out = o.resource;
	return CUDA_SUCCESS;
}

API(cuTexObjectGetTextureDesc, (struct texture *out, uint64_t id))
{
	struct object o;
	NEED(out);
	TRY(find(id, false, &o, false));
	*out = o.texture;
	return CUDA_SUCCESS;
}

API(cuTexObjectGetResourceViewDesc, (struct view *out, uint64_t id))
{
	struct object o;
	NEED(out);
	TRY(find(id, false, &o, false));
	NEED(o.viewed);
	*out = o.view;
	return CUDA_SUCCESS;
}

API(cuSurfObjectCreate, (uint64_t *id, const struct resource *r))
{
	return create(id, r, NULL, NULL, true);
}

API(cuSurfObjectDestroy, (uint64_t id))
{
	struct object o;
	return find(id, true, &o, true);
}

API(cuSurfObjectGetResourceDesc, (struct resource *out, uint64_t id))
{
	struct object o;
	NEED(out);
	TRY(find(id, true, &o, false));
	*out = o.resource;
	return CUDA_SUCCESS;
}
