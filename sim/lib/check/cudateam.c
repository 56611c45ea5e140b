/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cudateam NAME: memory that something else than a handle holds, against libcuda.so.1; ends with 1 and the place at
 * the first surprise.
 */
#include "cuda.h"

#include <sys/wait.h>
#include <unistd.h>

static CUmemGenericAllocationHandle make(CUdevice device, size_t bytes, int handles)
{
	const CUmemAllocationProp prop = { .type = 1, .requestedHandleTypes = handles, .location = { 1, device },
					   .allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL };
	CUmemGenericAllocationHandle h;
	EQ(CALL(cuMemCreate)(&h, bytes, &prop, 0), 0);
	return h;
}

/* The small levels of a sparse array are mapped as one stretch. */
static void tail(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE },
				      deep = { 256, 256, 64, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_SPARSE };
	CUDA_ARRAY_SPARSE_PROPERTIES p;
	CUmipmappedArray mip;
	CUarray array;
	start();
	size_t before = free_now();
	EQ(CALL(cuArray3DCreate_v2)(&array, &deep), 0);
	EQ(CALL(cuArrayGetSparseProperties)(&p, array), 0);
	EQ(p.tileExtent.width == 32 && p.tileExtent.height == 16 && p.tileExtent.depth == 16, 1);
	EQ(p.miptailFirstLevel == 0 && p.miptailSize == 0 && p.flags == 0, 1);
	EQ(CALL(cuArrayDestroy)(array), 0);
	EQ(CALL(cuMipmappedArrayCreate)(&mip, &d, 11), 0);
	EQ(CALL(cuMipmappedArrayGetSparseProperties)(&p, mip), 0);
	EQ(p.tileExtent.width == 128 && p.tileExtent.height == 128 && p.tileExtent.depth == 1, 1);
	EQ(p.miptailFirstLevel, 4); /* 64 by 64 */
	EQ(p.miptailSize, 2 * MIB);
	EQ(p.flags, 1); /* one tail */
	CUarrayMapInfo m = { .resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .resource.mipmap = mip, .deviceBitMask = 1,
			     .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL,
			     .memOperationType = CU_MEM_OPERATION_TYPE_MAP };
	m.memHandle.memHandle = make(0, 2 * MIB, 0);
	m.subresource.miptail.size = 4 * MIB;
	EQ(CALL(cuMemMapArrayAsync)(&m, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	m.subresource.miptail.size = 2 * MIB;
	EQ(CALL(cuMemMapArrayAsync)(&m, 1, NULL), 0);
	EQ(CALL(cuMemRelease)(m.memHandle.memHandle), 0);
	EQ(free_now(), before - 2 * MIB);
	m.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	EQ(CALL(cuMemMapArrayAsync)(&m, 1, NULL), 0);
	EQ(free_now(), before);
	EQ(CALL(cuMipmappedArrayDestroy)(mip), 0);
}

/* The newest driver has calls that name the GPU, too. */
static void named(void)
{
	const CUmulticastObjectProp prop = { .numDevices = 2, .size = 8 * MIB };
	CUmemGenericAllocationHandle mc, one;
	CUdeviceptr va;
	if (!dlsym(library, "cuMulticastBindMem_v2"))
		return;
	size_t before = free_now();
	EQ(CALL(cuMulticastCreate)(&mc, &prop), 0);
	EQ(CALL(cuMulticastAddDevice)(mc, 0), 0);
	EQ(CALL(cuMulticastAddDevice)(mc, 1), 0);
	one = make(0, 4 * MIB, 0);
	EQ(CALL(cuMulticastBindMem_v2)(mc, 1, 0, one, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindMem_v2)(mc, 0, 0, one, 0, 4 * MIB, 0), 0);
	EQ(CALL(cuMemAddressReserve)(&va, 4 * MIB, 0, 0, 0), 0);
	EQ(CALL(cuMemMap)(va, 4 * MIB, 0, one, 0), 0);
	EQ(CALL(cuMemRelease)(one), 0);
	EQ(CALL(cuMulticastBindAddr_v2)(mc, 1, 4 * MIB, va, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindAddr_v2)(mc, 0, 4 * MIB, va, 4 * MIB, 0), 0);
	EQ(CALL(cuMemUnmap)(va, 4 * MIB), 0);
	EQ(free_now(), before - 6 * MIB);
	EQ(CALL(cuMemRelease)(mc), 0);
	EQ(free_now(), before);
}

/* A team of two GPUs: what is bound stays until it is unbound or the object has ended. */
static void multicast(void)
{
	CUmulticastObjectProp prop = { .numDevices = 2, .size = 8 * MIB };
	CUmemGenericAllocationHandle mc, one, other;
	CUdeviceptr va;
	size_t unit;
	int able;
	start();
	size_t before = free_now();
	EQ(CALL(cuDeviceGetAttribute)(&able, 132, 0), 0);
	EQ(able, 1);
	EQ(CALL(cuMulticastGetGranularity)(&unit, &prop, 1), 0);
	EQ(unit, 2 * MIB);
	EQ(CALL(cuMulticastCreate)(&mc, &prop), 0);
	EQ(free_now(), before);
	EQ(CALL(cuMulticastAddDevice)(mc, 0), 0);
	EQ(CALL(cuMulticastAddDevice)(mc, 0), CUDA_ERROR_INVALID_VALUE);
	one = make(0, 4 * MIB, 0);
	other = make(1, 4 * MIB, 0);
	EQ(CALL(cuMulticastBindMem)(mc, 0, one, 0, 4 * MIB, 0), CUDA_ERROR_ILLEGAL_STATE);
	EQ(CALL(cuMulticastAddDevice)(mc, 1), 0);
	EQ(CALL(cuMulticastAddDevice)(mc, 2), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindMem)(mc, 0, one, 0, 6 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindMem)(mc, 6 * MIB, one, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindMem)(one, 0, one, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindMem)(mc, 0, mc, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMulticastBindMem)(mc, 0, one, 0, 4 * MIB, 0), 0);
	EQ(CALL(cuMulticastBindMem)(mc, 2 * MIB, one, 0, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE); /* there is something */
	EQ(CALL(cuMulticastBindMem)(mc, 2 * MIB, other, 0, 2 * MIB, 0), 0);			/* of the other GPU */
	EQ(CALL(cuMemRelease)(one), 0);
	EQ(CALL(cuMemRelease)(other), 0);
	EQ(free_now(), before - 6 * MIB);
	EQ(CALL(cuMulticastUnbind)(mc, 1, 0, 4 * MIB), 0);
	EQ(CALL(cuMulticastUnbind)(mc, 1, 0, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	EQ(free_now(), before - 6 * MIB);
	EQ(CALL(cuMulticastUnbind)(mc, 0, 0, 4 * MIB), 0);
	EQ(free_now(), before - 2 * MIB);
	EQ(CALL(cuMemAddressReserve)(&va, 16 * MIB, 0, 0, 0), 0);
	one = make(0, 2 * MIB, 0);
	EQ(CALL(cuMemMap)(va, 2 * MIB, 0, one, 0), 0);
	EQ(CALL(cuMemMap)(va + 8 * MIB, 8 * MIB, 0, mc, 0), 0);
	EQ(CALL(cuMemRelease)(one), 0);
	EQ(CALL(cuMulticastBindAddr)(mc, 0, va, 2 * MIB, 0), 0);
	EQ(CALL(cuMulticastBindAddr)(mc, 2 * MIB, va + 8 * MIB, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemUnmap)(va, 2 * MIB), 0);
	EQ(CALL(cuMemRelease)(mc), 0);
	EQ(free_now(), before - 4 * MIB); /* the mapping holds it */
	EQ(CALL(cuMemUnmap)(va + 8 * MIB, 8 * MIB), 0);
	EQ(free_now(), before);
	EQ(CALL(cuMulticastAddDevice)(mc, 0), CUDA_ERROR_INVALID_VALUE);
	named();
	prop.handleTypes = 1;
	EQ(CALL(cuMulticastCreate)(&mc, &prop), CUDA_ERROR_NOT_SUPPORTED);
}

/* An import and what is mapped of it hold memory, each by itself. */
static void external(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 4 * MIB };
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = { .offset = 2 * MIB, .size = 2 * MIB };
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC image = { .offset = 2 * MIB, .numLevels = 2,
		.arrayDesc = { .Width = 1024, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1 } };
	CUexternalMemory memory;
	CUmipmappedArray mip;
	CUarray level;
	CUdeviceptr ptr;
	int fd, spare;
	start();
	size_t before = free_now();
	CUmemGenericAllocationHandle h = make(0, 4 * MIB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	EQ(CALL(cuMemExportToShareableHandle)(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), 0);
	spare = dup(fd);
	desc.handle.fd = fd;
	desc.size = 6 * MIB;
	EQ(CALL(cuImportExternalMemory)(&memory, &desc), CUDA_ERROR_INVALID_VALUE);
	desc.size = 4 * MIB;
	EQ(CALL(cuImportExternalMemory)(&memory, &desc), 0);
	EQ(close(fd), -1); /* it was the driver's */
	EQ(CALL(cuMemRelease)(h), 0);
	EQ(free_now(), before - 4 * MIB);
	EQ(CALL(cuExternalMemoryGetMappedBuffer)(&ptr, memory, &part), 0);
	part.offset = 3 * MIB;
	EQ(CALL(cuExternalMemoryGetMappedBuffer)(&ptr, memory, &part), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemsetD8_v2)(ptr, 1, 2 * MIB), 0);
	/* past its end */
	EQ(CALL(cuExternalMemoryGetMappedMipmappedArray)(&mip, memory, &image), CUDA_ERROR_INVALID_VALUE);
	image.offset = 0;
	EQ(CALL(cuExternalMemoryGetMappedMipmappedArray)(&mip, memory, &image), 0);
	EQ(CALL(cuMipmappedArrayGetLevel)(&level, mip, 1), 0);
	EQ(CALL(cuDestroyExternalMemory)(memory), 0);
	EQ(free_now(), before - 4 * MIB);
	EQ(CALL(cuMemFree_v2)(ptr), 0);
	EQ(free_now(), before - 4 * MIB);
	EQ(CALL(cuMipmappedArrayDestroy)(mip), 0);
	EQ(free_now(), before - 4 * MIB); /* a file stands for it */
	desc.handle.fd = spare;
	EQ(CALL(cuImportExternalMemory)(&memory, &desc), 0);
	EQ(CALL(cuDestroyExternalMemory)(memory), 0);
	EQ(free_now(), before);
	EQ(CALL(cuImportExternalMemory)(&memory, &desc) != 0, 1);
	desc.type = 9;
	EQ(CALL(cuImportExternalMemory)(&memory, &desc), CUDA_ERROR_NOT_SUPPORTED);
}

/* Another process's memory is charged to that one alone. */
static void foreign(void)
{
	CUexternalMemory memory;
	int pipes[2], fd, status;
	EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		const CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = { .type = 1, .handle.fd = handed(pipes[0]), .size = 64 * MIB };
		start();
		size_t mine = free_now();
		EQ(CALL(cuImportExternalMemory)(&memory, &desc), 0);
		EQ(free_now(), mine);
		EQ(CALL(cuDestroyExternalMemory)(memory), 0);
		EQ(free_now(), mine);
		exit(0);
	}
	start();
	CUmemGenericAllocationHandle h = make(0, 64 * MIB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	EQ(CALL(cuMemExportToShareableHandle)(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), 0);
	hand(pipes[1], fd);
	EQ(waitpid(child, &status, 0), child);
	EQ(status, 0);
}

/* A process goes away and comes back; what it calls meanwhile waits. */
static void checkpoint(void)
{
	CUprocessState state;
	int up[2], down[2], status, thread;
	char c;
	EQ(pipe(up) | pipe(down), 0);
	pid_t child = fork();
	alarm(30); /* in both: neither may wait for good for one that has failed */
	if (child == 0) {
		CUdeviceptr ptr;
		EQ(read(down[0], &c, 1), 1);
		start();
		EQ(CALL(cuMemAlloc_v2)(&ptr, 64 * MIB), 0);
		EQ(write(up[1], "a", 1), 1);
		EQ(read(down[0], &c, 1), 1);
		EQ(CALL(cuMemAlloc_v2)(&ptr, 2 * MIB), 0);
		EQ(write(up[1], "b", 1), 1);
		EQ(read(down[0], &c, 1), 1);
		exit(0);
	}
	start();
	size_t alone = free_now();
	EQ(write(down[1], "s", 1), 1);
	EQ(read(up[0], &c, 1), 1);
	size_t both = free_now();
	EQ(alone - both >= 64 * MIB, 1);
	EQ(CALL(cuCheckpointProcessGetState)(child, &state), 0);
	EQ(state, CU_PROCESS_STATE_RUNNING);
	EQ(CALL(cuCheckpointProcessCheckpoint)(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	EQ(CALL(cuCheckpointProcessLock)(child, NULL), 0);
	EQ(CALL(cuCheckpointProcessLock)(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	EQ(CALL(cuCheckpointProcessCheckpoint)(child, NULL), 0);
	EQ(CALL(cuCheckpointProcessGetState)(child, &state), 0);
	EQ(state, CU_PROCESS_STATE_CHECKPOINTED);
	EQ(CALL(cuCheckpointProcessGetRestoreThreadId)(child, &thread), 0);
	EQ(free_now(), alone);
	EQ(write(down[1], "c", 1), 1);
	usleep(20000);
	EQ(free_now(), alone); /* it waits */
	EQ(CALL(cuCheckpointProcessRestore)(child, NULL), 0);
	EQ(free_now(), both);
	EQ(CALL(cuCheckpointProcessUnlock)(child, NULL), 0);
	EQ(read(up[0], &c, 1), 1);
	EQ(free_now(), both - 2 * MIB);
	EQ(write(down[1], "d", 1), 1);
	EQ(waitpid(child, &status, 0), child);
	EQ(status, 0);
	EQ(CALL(cuCheckpointProcessGetState)(child, &state), CUDA_ERROR_INVALID_VALUE);
}

/* The same of an image: what it is mapped as has no memory, and no program may destroy it. */
static void image_of(unsigned name, size_t size)
{
	CUgraphicsResource r, buffer;
	CUmipmappedArray mip;
	CUarray array;
	CUeglFrame frame;
	CUDA_ARRAY3D_DESCRIPTOR d;
	size_t before = free_now();
	EQ(CALL(cuGraphicsGLRegisterBuffer)(&buffer, name, 0), 0);
	EQ(CALL(cuGraphicsMapResources)(1, &buffer, NULL), 0);
	EQ(CALL(cuGraphicsSubResourceGetMappedArray)(&array, buffer, 0, 0), CUDA_ERROR_NOT_MAPPED_AS_ARRAY);
	EQ(CALL(cuGraphicsUnregisterResource)(buffer), 0);
	EQ(CALL(cuGraphicsEGLRegisterImage)(&r, (void *)(uintptr_t)name, 0), 0);
	EQ(CALL(cuGraphicsSubResourceGetMappedArray)(&array, r, 0, 0), CUDA_ERROR_NOT_MAPPED);
	EQ(CALL(cuGraphicsMapResources)(1, &r, NULL), 0);
	EQ(CALL(cuGraphicsSubResourceGetMappedArray)(&array, r, 0, 1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGraphicsSubResourceGetMappedArray)(&array, r, 0, 0), 0);
	EQ(CALL(cuArray3DGetDescriptor_v2)(&d, array), 0);
	EQ(d.Width * d.Height * 16, size);
	EQ(CALL(cuArrayDestroy)(array), CUDA_ERROR_INVALID_HANDLE);
	EQ(CALL(cuGraphicsResourceGetMappedMipmappedArray)(&mip, r), 0);
	EQ(CALL(cuGraphicsResourceGetMappedEglFrame)(&frame, r, 0, 0), 0);
	EQ(frame.frame.pArray[0] == array && frame.width == d.Width && frame.height == d.Height, 1);
	EQ(CALL(cuGraphicsUnregisterResource)(r), 0);
	EQ(free_now(), before);
}

/* As before CUDA 3, by its name alone. */
static void older(unsigned name, size_t size)
{
	CUdeviceptr ptr;
	size_t bytes, before = free_now();
	EQ(CALL(cuGLInit)(), 0);
	EQ(CALL(cuGLMapBufferObject_v2)(&ptr, &bytes, name), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGLRegisterBufferObject)(name), 0);
	EQ(CALL(cuGLRegisterBufferObject)(name), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGLSetBufferObjectMapFlags)(name, 1), 0);
	EQ(CALL(cuGLMapBufferObjectAsync_v2)(&ptr, &bytes, name, NULL), 0);
	EQ(bytes, size);
	EQ(CALL(cuMemsetD8_v2)(ptr, 0, bytes), 0);
	EQ(CALL(cuGLUnmapBufferObjectAsync)(name, NULL), 0);
	EQ(CALL(cuGLUnmapBufferObject)(name), CUDA_ERROR_NOT_MAPPED);
	EQ(CALL(cuGLMapBufferObject_v2_ptds)(&ptr, &bytes, name), 0);
	EQ(CALL(cuGLUnregisterBufferObject)(name), 0);
	EQ(CALL(cuGLUnregisterBufferObject)(name), CUDA_ERROR_INVALID_VALUE);
	EQ(free_now(), before);
}

static void streams(unsigned name)
{
	CUeglStreamConnection in, out;
	CUgraphicsResource r;
	CUeglFrame frame = { 0 }, back;
	CUdeviceptr ptr;
	EQ(CALL(cuEGLStreamConsumerConnectWithFlags)(&in, (void *)(uintptr_t)name, 2), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuEGLStreamConsumerConnect)(&in, (void *)(uintptr_t)name), 0);
	EQ(CALL(cuEGLStreamConsumerReleaseFrame)(&in, NULL, NULL), CUDA_ERROR_LAUNCH_TIMEOUT);
	EQ(CALL(cuEGLStreamConsumerAcquireFrame)(&in, &r, NULL, 100), 0);
	EQ(CALL(cuEGLStreamConsumerAcquireFrame)(&in, &r, NULL, 100), CUDA_ERROR_LAUNCH_TIMEOUT);
	EQ(CALL(cuGraphicsResourceGetMappedEglFrame)(&back, r, 0, 0), 0);
	EQ(CALL(cuEGLStreamConsumerReleaseFrame)(&in, r, NULL), 0);
	EQ(CALL(cuEGLStreamConsumerAcquireFrame)(&in, &r, NULL, 100), 0);
	EQ(CALL(cuEGLStreamProducerDisconnect)(&in), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuEGLStreamConsumerDisconnect)(&in), 0);
	EQ(CALL(cuEGLStreamProducerConnect)(&out, (void *)(uintptr_t)name, 16, 16), 0);
	EQ(CALL(cuEGLStreamProducerPresentFrame)(&out, frame, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemAlloc_v2)(&ptr, 2 * MIB), 0);
	frame.frame.pPitch[0] = (void *)(uintptr_t)ptr;
	EQ(CALL(cuEGLStreamProducerReturnFrame)(&out, &back, NULL), CUDA_ERROR_LAUNCH_TIMEOUT);
	EQ(CALL(cuEGLStreamProducerPresentFrame)(&out, frame, NULL), 0);
	EQ(CALL(cuEGLStreamProducerReturnFrame)(&out, &back, NULL), 0);
	EQ(back.frame.pPitch[0] == frame.frame.pPitch[0], 1);
	EQ(CALL(cuEGLStreamProducerDisconnect)(&out), 0);
	EQ(CALL(cuMemFree_v2)(ptr), 0);
}

/* A graphics driver's objects, which CUDA maps: a buffer as memory, images not. */
static void interop(void)
{
	void *other = dlopen("libgpusim-graphics.so.1", RTLD_NOW);
	int (*take)(int, uint64_t, unsigned *) = (int (*)(int, uint64_t, unsigned *))dlsym(other, "gpusim_graphics_name");
	int (*drop)(unsigned) = (int (*)(unsigned))dlsym(other, "gpusim_graphics_drop");
	CUgraphicsResource r, image, both[2];
	CUdeviceptr ptr;
	unsigned name;
	size_t bytes, before;
	start();
	EQ(CALL(cuGraphicsGLRegisterBuffer)(&r, 7, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(take(0, 4 * MIB, &name), 0);
	before = free_now();
	EQ(CALL(cuGraphicsGLRegisterBuffer)(&r, name, 3), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGraphicsGLRegisterBuffer)(&r, name, 0), 0);
	EQ(CALL(cuGraphicsEGLRegisterImage)(&image, (void *)(uintptr_t)name, 0), 0);
	EQ(CALL(cuGraphicsResourceGetMappedPointer_v2)(&ptr, &bytes, r), CUDA_ERROR_NOT_MAPPED);
	EQ(CALL(cuGraphicsUnmapResources)(1, &r, NULL), CUDA_ERROR_NOT_MAPPED);
	both[0] = r;
	both[1] = image;
	EQ(CALL(cuGraphicsMapResources)(2, both, NULL), 0);
	EQ(CALL(cuGraphicsMapResources)(1, &r, NULL), CUDA_ERROR_ALREADY_MAPPED);
	EQ(CALL(cuGraphicsResourceGetMappedPointer_v2)(&ptr, &bytes, image), CUDA_ERROR_NOT_MAPPED_AS_POINTER);
	EQ(CALL(cuGraphicsResourceGetMappedPointer_v2)(&ptr, &bytes, r), 0);
	EQ(bytes, 4 * MIB);
	EQ(CALL(cuMemsetD8_v2)(ptr, 0, 4 * MIB), 0);
	EQ(CALL(cuMemFree_v2)(ptr), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGraphicsUnmapResources_ptsz)(1, &r, NULL), 0);
	EQ(CALL(cuMemsetD8_v2)(ptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGraphicsUnregisterResource)(r), 0);
	EQ(CALL(cuGraphicsUnregisterResource)(image), 0);
	EQ(free_now(), before); /* it is the graphics driver's */
	image_of(name, 4 * MIB);
	older(name, 4 * MIB);
	streams(name);
	EQ(free_now(), before);
	EQ(drop(name), 0);
	EQ(free_now(), before + 4 * MIB);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = { { "tail", tail }, { "multicast", multicast }, { "external", external }, { "foreign", foreign },
		{ "checkpoint", checkpoint }, { "interop", interop } };
	for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof scenarios[0]; i++)
		if (strcmp(argv[1], scenarios[i].name) == 0) {
			load("libcuda.so.1");
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "usage: cudateam SCENARIO\n");
	return 2;
}
