/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ways to take memory. Each leaves nothing behind when it fails.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

static CUresult take_linear(struct load *l, struct block *p)
{
	return l->cuda.alloc(&p->ptr, p->bytes);
}

static void give_linear(struct load *l, struct block *p)
{
	l->cuda.free(p->ptr);
}

static CUresult take_async(struct load *l, struct block *p)
{
	TRY(l->cuda.alloc_async(&p->ptr, p->bytes, NULL));
	return l->cuda.stream_sync(NULL);
}

static void give_async(struct load *l, struct block *p)
{
	l->cuda.free_async(p->ptr, NULL);
}

static CUresult take_vmm(struct load *l, struct block *p)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, l->device } };
	const CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t unit;
	TRY(l->cuda.granularity(&unit, &prop, 0));
	p->bytes = (p->bytes + unit - 1) / unit * unit;
	TRY(l->cuda.create(&p->handle, p->bytes, &prop, 0));
	CUresult ret = l->cuda.reserve(&p->ptr, p->bytes, 0, 0, 0);
	if (!ret && !(ret = l->cuda.map(p->ptr, p->bytes, 0, p->handle, 0)) &&
	    !(ret = l->cuda.set_access(p->ptr, p->bytes, &access, 1)))
		return CUDA_SUCCESS;
	if (p->ptr) {
		l->cuda.unmap(p->ptr, p->bytes);
		l->cuda.unreserve(p->ptr, p->bytes);
	}
	l->cuda.release_handle(p->handle);
	return ret;
}

static void give_vmm(struct load *l, struct block *p)
{
	l->cuda.unmap(p->ptr, p->bytes);
	l->cuda.unreserve(p->ptr, p->bytes);
	l->cuda.release_handle(p->handle);
}

/* Rows of 64 KiB, so that the pitch adds nothing; a smaller block is one row. */
#define ROW ((size_t)64 << 10)

static CUresult take_pitched(struct load *l, struct block *p)
{
	size_t pitch, width = p->bytes < ROW ? p->bytes : ROW;
	return l->cuda.alloc_pitch(&p->ptr, &pitch, width, (p->bytes + width - 1) / width, 16);
}

/* What does not fit on the GPU stays with the host, and is no error. */
static CUresult take_managed(struct load *l, struct block *p)
{
	TRY(l->cuda.alloc_managed(&p->ptr, p->bytes, CU_MEM_ATTACH_GLOBAL));
	CUresult ret = l->cuda.prefetch(p->ptr, p->bytes, l->device, NULL);
	if (!ret)
		ret = l->cuda.ctx_sync();
	if (ret)
		l->cuda.free(p->ptr);
	return ret;
}

static CUresult take_pool(struct load *l, struct block *p)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, l->device } };
	cuuint64_t all = UINT64_MAX;
	if (!l->pool) {
		TRY(l->cuda.pool_create(&l->pool, &props));
		TRY(l->cuda.pool_set(l->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	}
	TRY(l->cuda.alloc_from_pool(&p->ptr, p->bytes, l->pool, NULL));
	return l->cuda.stream_sync(NULL);
}

/* Rows of 64 KiB in layers of equal height, within what a GPU allows of each side. */
static CUresult take_array(struct load *l, struct block *p)
{
	const size_t texel = 16, most = 16384;
	size_t rows = (p->bytes + ROW - 1) / ROW, layers = (rows + most - 1) / most;
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = ROW / texel, .Height = (rows + layers - 1) / layers,
					 .Depth = layers, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
	return l->cuda.array_create(&p->array, &desc);
}

static void give_array(struct load *l, struct block *p)
{
	l->cuda.array_destroy(p->array);
}

static void drop_graph(struct load *l, struct block *p)
{
	if (p->exec)
		l->cuda.exec_destroy(p->exec);
	l->cuda.graph_destroy(p->graph);
	l->cuda.graph_trim(l->device);
}

static CUresult take_graph(struct load *l, struct block *p)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, l->device } },
		.bytesize = p->bytes,
	};
	CUgraphNode node;
	TRY(l->cuda.graph_create(&p->graph, 0));
	CUresult ret = l->cuda.add_alloc(&node, p->graph, NULL, 0, &params);
	if (!ret)
		ret = l->cuda.instantiate(&p->exec, p->graph, 0);
	if (!ret)
		ret = l->cuda.graph_launch(p->exec, NULL);
	if (!ret)
		ret = l->cuda.stream_sync(NULL);
	if (ret)
		drop_graph(l, p);
	else
		p->ptr = params.dptr;
	return ret;
}

static void give_graph(struct load *l, struct block *p)
{
	l->cuda.free(p->ptr);
	drop_graph(l, p);
}

#define PTX ".version 7.0\n.target sm_52\n.address_size 64\n"

static CUresult take_module(struct load *l, struct block *p)
{
	char image[200];
	snprintf(image, sizeof image, PTX ".visible .global .align 16 .b8 kerf_load[%zu];\n", p->bytes);
	return l->cuda.module_load(&p->module, image);
}

static void give_module(struct load *l, struct block *p)
{
	l->cuda.module_unload(p->module);
}

static CUresult take_library(struct load *l, struct block *p)
{
	char image[200];
	if (!l->cuda.library_load || !l->cuda.library_unload)
		return CUDA_ERROR_NOT_SUPPORTED;
	snprintf(image, sizeof image, PTX ".visible .global .align 16 .b8 kerf_load[%zu];\n", p->bytes);
	return l->cuda.library_load(&p->library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static void give_library(struct load *l, struct block *p)
{
	l->cuda.library_unload(p->library);
}

/* A limit of the context grows by each block, and a launch is what takes it. It goes with the context. */
static CUresult grow(struct load *l, struct block *p, int limit)
{
	CUmodule module;
	size_t now;
	if (!l->function) {
		TRY(l->cuda.module_load(&module, PTX ".visible .entry kerf_nothing()\n{\nret;\n}\n"));
		TRY(l->cuda.get_function(&l->function, module, "kerf_nothing"));
	}
	TRY(l->cuda.get_limit(&now, limit));
	TRY(l->cuda.set_limit(limit, now + p->bytes));
	CUresult ret = l->cuda.launch(l->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	if (!ret)
		ret = l->cuda.ctx_sync();
	if (ret)
		l->cuda.set_limit(limit, now);
	return ret;
}

static CUresult take_heap(struct load *l, struct block *p)
{
	return grow(l, p, CU_LIMIT_MALLOC_HEAP_SIZE);
}

static CUresult take_printf(struct load *l, struct block *p)
{
	return grow(l, p, CU_LIMIT_PRINTF_FIFO_SIZE);
}

/* The stack of each thread that can run at once grows together; what it came to is seen by what is free. */
static CUresult take_stack(struct load *l, struct block *p)
{
	enum { UNIT = 1 << 10 };
	size_t before, after, total, now;
	int processors, threads;
	TRY(l->cuda.attribute(&processors, MULTIPROCESSOR_COUNT, l->device));
	TRY(l->cuda.attribute(&threads, MAX_THREADS_PER_MULTIPROCESSOR, l->device));
	size_t all = (size_t)processors * (size_t)threads, more = (p->bytes + all - 1) / all;
	TRY(l->cuda.get_limit(&now, CU_LIMIT_STACK_SIZE));
	struct block grown = { .bytes = (more + UNIT - 1) / UNIT * UNIT };
	TRY(l->cuda.mem_info(&before, &total));
	TRY(grow(l, &grown, CU_LIMIT_STACK_SIZE));
	TRY(l->cuda.mem_info(&after, &total));
	p->counted = before > after ? before - after : grown.bytes * all;
	return CUDA_SUCCESS;
}

static void give_heap(struct load *l, struct block *p)
{
	(void)l;
	(void)p;
}

/* What a context costs is seen by what is free; where that does not change, it is taken for all of the block. */
static CUresult take_context(struct load *l, struct block *p)
{
	size_t before, after, total;
	TRY(l->cuda.mem_info(&before, &total));
	TRY(l->cuda.ctx_create(&p->context, 0, l->device));
	TRY(l->cuda.mem_info(&after, &total));
	p->counted = before > after ? before - after : p->bytes;
	return l->cuda.set_current(l->context);
}

static void give_context(struct load *l, struct block *p)
{
	l->cuda.ctx_destroy(p->context);
}

static CUresult take_green(struct load *l, struct block *p)
{
	size_t before, after, total;
	CUdevResource all;
	CUdevResourceDesc desc;
	if (!l->cuda.get_resource || !l->cuda.describe || !l->cuda.green_create || !l->cuda.green_destroy)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(l->cuda.get_resource(l->device, &all, CU_DEV_RESOURCE_TYPE_SM));
	TRY(l->cuda.describe(&desc, &all, 1));
	TRY(l->cuda.mem_info(&before, &total));
	TRY(l->cuda.green_create(&p->green, desc, l->device, CU_GREEN_CTX_DEFAULT_STREAM));
	TRY(l->cuda.mem_info(&after, &total));
	p->counted = before > after ? before - after : p->bytes;
	return CUDA_SUCCESS;
}

static void give_green(struct load *l, struct block *p)
{
	l->cuda.green_destroy(p->green);
}

/* Rows of 64 KiB, whole tiles of 128 by 128 texels of 4 bytes; only the array holds what is mapped into it. A
 * real GPU has no rows for more than 1 GiB in one. */
static CUresult take_sparse(struct load *l, struct block *p)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, l->device },
					   .allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL };
	size_t unit, rows;
	CUmemGenericAllocationHandle handle;
	if (!l->cuda.map_array)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(l->cuda.granularity(&unit, &prop, 0));
	p->bytes = (p->bytes + unit - 1) / unit * unit;
	rows = (p->bytes / ROW + 127) / 128 * 128;
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = ROW / 4, .Height = rows, .Format = CU_AD_FORMAT_FLOAT,
					 .NumChannels = 1, .Flags = CUDA_ARRAY3D_SPARSE };
	CUarrayMapInfo info = { .resourceType = CU_RESOURCE_TYPE_ARRAY, .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
				.deviceBitMask = 1u << l->device };
	info.subresource.sparseLevel.extentWidth = ROW / 4;
	info.subresource.sparseLevel.extentHeight = (unsigned)rows;
	info.subresource.sparseLevel.extentDepth = 1;
	TRY(l->cuda.create(&handle, rows * ROW, &prop, 0));
	info.memHandle.memHandle = handle;
	CUresult ret = l->cuda.array_create(&p->array, &desc);
	if (!ret) {
		info.resource.array = p->array;
		ret = l->cuda.map_array(&info, 1, NULL);
		if (!ret)
			ret = l->cuda.stream_sync(NULL);
		if (ret)
			l->cuda.array_destroy(p->array);
	}
	l->cuda.release_handle(handle);
	return ret;
}

CUresult make_whole(struct load *l, struct block *p, int handles, CUmemGenericAllocationHandle *handle)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = handles,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, l->device } };
	size_t unit;
	TRY(l->cuda.granularity(&unit, &prop, 0));
	p->bytes = (p->bytes + unit - 1) / unit * unit;
	return l->cuda.create(handle, p->bytes, &prop, 0);
}

/* A team of one, which alone holds what is bound to it. */
static CUresult make_team(struct load *l, struct block *p, bool of)
{
	CUmemGenericAllocationHandle handle;
	if (!l->cuda.team_create || !l->cuda.team_add || (of ? !l->cuda.team_bind_of : !l->cuda.team_bind))
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(make_whole(l, p, 0, &handle));
	const CUmulticastObjectProp prop = { .numDevices = 1, .size = p->bytes };
	CUresult ret = l->cuda.team_create(&p->handle, &prop);
	if (!ret) {
		ret = l->cuda.team_add(p->handle, l->device);
		if (!ret)
			ret = of ? l->cuda.team_bind_of(p->handle, l->device, 0, handle, 0, p->bytes, 0) :
				   l->cuda.team_bind(p->handle, 0, handle, 0, p->bytes, 0);
		if (ret)
			l->cuda.release_handle(p->handle);
	}
	l->cuda.release_handle(handle);
	return ret;
}

static CUresult take_multicast(struct load *l, struct block *p)
{
	return make_team(l, p, false);
}

/* The same by the call of CUDA 13.1 that names the GPU. */
static CUresult take_multicast_v2(struct load *l, struct block *p)
{
	return make_team(l, p, true);
}

static void give_multicast(struct load *l, struct block *p)
{
	l->cuda.release_handle(p->handle);
}

/* Memory that is imported as another API's, with nothing else to hold it. A real driver may take such files from
 * Vulkan and its like alone. */
static CUresult take_external(struct load *l, struct block *p)
{
	CUmemGenericAllocationHandle handle;
	int fd = -1;
	if (!l->cuda.export_handle || !l->cuda.import_external || !l->cuda.external_buffer || !l->cuda.external_destroy)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(make_whole(l, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &handle));
	CUresult ret = l->cuda.export_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (!ret) {
		const CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
								.handle.fd = fd, .size = p->bytes };
		ret = l->cuda.import_external(&p->external, &desc);
		if (ret)
			close(fd); /* else it is the driver's */
	}
	l->cuda.release_handle(handle);
	if (ret)
		return ret;
	const CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = { .size = p->bytes };
	ret = l->cuda.external_buffer(&p->ptr, p->external, &buffer);
	if (ret)
		l->cuda.external_destroy(p->external);
	return ret;
}

static void give_external(struct load *l, struct block *p)
{
	l->cuda.free(p->ptr);
	l->cuda.external_destroy(p->external);
}

/* As managed; the legacy stream takes no batch. */
static CUresult take_batch(struct load *l, struct block *p)
{
	CUmemLocation to = { CU_MEM_LOCATION_TYPE_DEVICE, l->device };
	size_t first = 0;
	if (!l->cuda.prefetch_batch)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(l->cuda.alloc_managed(&p->ptr, p->bytes, CU_MEM_ATTACH_GLOBAL));
	CUresult ret = l->cuda.prefetch_batch(&p->ptr, &p->bytes, 1, &to, &first, 1, 0, CU_STREAM_PER_THREAD);
	if (!ret)
		ret = l->cuda.ctx_sync();
	if (ret)
		l->cuda.free(p->ptr);
	return ret;
}

static const struct family families[] = {
	{ "linear", take_linear, give_linear },
	{ "async", take_async, give_async },
	{ "vmm", take_vmm, give_vmm },
	{ "pitched", take_pitched, give_linear },
	{ "managed", take_managed, give_linear },
	{ "pool", take_pool, give_async },
	{ "array", take_array, give_array },
	{ "graph", take_graph, give_graph },
	{ "module", take_module, give_module },
	{ "heap", take_heap, give_heap },
	{ "context", take_context, give_context },
	{ "batch", take_batch, give_linear },
	{ "library", take_library, give_library },
	{ "printf", take_printf, give_heap },
	{ "green", take_green, give_green },
	{ "sparse", take_sparse, give_array },
	{ "multicast", take_multicast, give_multicast },
	{ "multicast-v2", take_multicast_v2, give_multicast },
	{ "external", take_external, give_external },
	{ "mipmap", take_mipmap, give_mipmap },
	{ "external-mipmap", take_external_mipmap, give_mipmap },
	{ "graphics", take_graphics, give_graphics },
	{ "gl", take_gl, give_object },
	{ "gl-image", take_gl_image, give_object },
	{ "egl", take_egl, give_object },
	{ "vdpau", take_vdpau, give_object },
	{ "gl-array", take_gl_array, give_object },
	{ "gl-old", take_gl_old, give_gl_old },
	{ "egl-consumer", take_egl_consumer, give_egl_consumer },
	{ "egl-producer", take_egl_producer, give_egl_producer },
	{ "gl-context", take_gl_context, give_context },
	{ "vdpau-context", take_vdpau_context, give_context },
	{ "checkpoint", take_checkpoint, give_checkpoint },
	{ "ipc", take_ipc, give_ipc },
	{ "import", take_import, give_import },
	{ "pool-import", take_pool_import, give_pool_import },
	{ "file", take_file, give_file },
	{ "stack", take_stack, give_heap },
};
enum { FAMILIES = sizeof families / sizeof families[0] };

const struct family *find_api(const char *name)
{
	for (int i = 0; i < FAMILIES; i++)
		if (strcmp(name, families[i].name) == 0)
			return &families[i];
	return NULL;
}

void api_names(char *out, size_t size)
{
	size_t n = 0;
	out[0] = 0;
	for (int i = 0; i < FAMILIES && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", families[i].name);
}
