/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * runtime CASE: one use of NVIDIA's CUDA runtime. Nothing here needs the result of a kernel.
 */
#include "userland.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__device__ int table[1024];
__constant__ float constants[16];

__global__ void work(int *p)
{
	if (p)
		p[threadIdx.x] = table[threadIdx.x] + (int)constants[0];
}

static unsigned char pattern[64 << 10];

static void fill_pattern(void)
{
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (unsigned char)(i * 7 + 3);
}

/* Writes to memory of the device, reads it again, and prints a sum of what came back. */
static void round_trip(const char *name, void *device)
{
	static unsigned char back[sizeof pattern];
	unsigned sum = 0;
	memset(back, 0, sizeof back);
	OK(cudaMemcpy(device, pattern, sizeof pattern, cudaMemcpyHostToDevice));
	OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < sizeof back; i++)
		sum = sum * 31 + back[i];
	TRUE(memcmp(back, pattern, sizeof back) == 0);
	printf("%s %08x\n", name, sum);
}

static void linear(void)
{
	void *p[8], *q;
	for (int i = 0; i < 8; i++)
		OK(cudaMalloc(&p[i], MIB));
	round_trip("linear", p[3]);
	REFUSED(cudaMalloc(&q, too_much()));
	OK(cudaMalloc(&q, GIB));
	OK(cudaFree(q));
	for (int i = 0; i < 8; i++)
		OK(cudaFree(p[i]));
}

static void pitched(void)
{
	void *p;
	cudaPitchedPtr deep;
	size_t pitch;
	unsigned char rows[16][100], back[16][100];
	OK(cudaMallocPitch(&p, &pitch, 100, 16));
	TRUE(pitch >= 100);
	for (int y = 0; y < 16; y++)
		memcpy(rows[y], pattern + 100 * y, 100);
	OK(cudaMemcpy2D(p, pitch, rows, 100, 100, 16, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2D(back, 100, p, pitch, 100, 16, cudaMemcpyDeviceToHost));
	TRUE(memcmp(rows, back, sizeof rows) == 0);
	OK(cudaFree(p));
	OK(cudaMalloc3D(&deep, make_cudaExtent(64, 16, 4)));
	OK(cudaMemset3D(deep, 0x5a, make_cudaExtent(64, 16, 4)));
	unsigned char one;
	OK(cudaMemcpy(&one, (char *)deep.ptr + 3 * 16 * deep.pitch + 5, 1, cudaMemcpyDeviceToHost));
	TRUE(one == 0x5a);
	OK(cudaFree(deep.ptr));
	REFUSED(cudaMallocPitch(&p, &pitch, MIB, too_much() / MIB));
	REFUSED(cudaMalloc3D(&deep, make_cudaExtent(MIB, 1024, too_much() / GIB)));
}

static void managed(void)
{
	int *p;
	cudaPointerAttributes a;
	OK(cudaMallocManaged(&p, MIB));
	for (int i = 0; i < 1024; i++)
		p[i] = i;
	OK(cudaMemPrefetchAsync(p, MIB, 0, 0));
	OK(cudaDeviceSynchronize());
	TRUE(p[1023] == 1023);
	OK(cudaPointerGetAttributes(&a, p));
	TRUE(a.type == cudaMemoryTypeManaged && a.devicePointer == p && a.hostPointer == p);
	round_trip("managed", p);
	OK(cudaFree(p));
	if (cap() && !managed_is_free())
		REFUSED(cudaMallocManaged(&p, too_much()));
}

static void arrays(void)
{
	cudaArray_t flat, deep;
	cudaMipmappedArray_t mipmap;
	cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
	float in[32 * 32], out[32 * 32];
	for (int i = 0; i < 32 * 32; i++)
		in[i] = (float)i;
	OK(cudaMallocArray(&flat, &f, 32, 32));
	OK(cudaMemcpy2DToArray(flat, 0, 0, in, 128, 128, 32, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2DFromArray(out, 128, flat, 0, 0, 128, 32, cudaMemcpyDeviceToHost));
	TRUE(memcmp(in, out, sizeof in) == 0);
	cudaResourceDesc resource = {};
	cudaTextureDesc texture = {};
	cudaTextureObject_t object;
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = flat;
	OK(cudaCreateTextureObject(&object, &resource, &texture, NULL));
	OK(cudaDestroyTextureObject(object));
	OK(cudaMalloc3DArray(&deep, &f, make_cudaExtent(64, 64, 64)));
	OK(cudaMallocMipmappedArray(&mipmap, &f, make_cudaExtent(256, 256, 0), 5));
	OK(cudaFreeMipmappedArray(mipmap));
	OK(cudaFreeArray(deep));
	OK(cudaFreeArray(flat));
	size_t side = too_much() / (4 * MIB) / 1024 + 1;
	REFUSED(cudaMalloc3DArray(&deep, &f, make_cudaExtent(1024, 1024, side * 1024)));
	puts("arrays");
}

static void async(void)
{
	void *p[4], *q;
	cudaStream_t s;
	cudaMemPool_t pool;
	uint64_t keep = UINT64_MAX;
	OK(cudaStreamCreate(&s));
	for (int i = 0; i < 4; i++)
		OK(cudaMallocAsync(&p[i], 32 * MIB, s));
	REFUSED(cudaMallocAsync(&q, too_much(), s));
	for (int i = 0; i < 4; i++)
		OK(cudaFreeAsync(p[i], s));
	OK(cudaStreamSynchronize(s));
	OK(cudaDeviceGetDefaultMemPool(&pool, 0));
	OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	OK(cudaMallocAsync(&q, MIB, s));
	OK(cudaStreamSynchronize(s));
	round_trip("async", q);
	OK(cudaFreeAsync(q, s));
	OK(cudaStreamSynchronize(s));
	OK(cudaMemPoolTrimTo(pool, 0));
	OK(cudaStreamDestroy(s));
}

/* Memory of the host is not the GPU's: a cap is no limit of it. */
static void host(void)
{
	unsigned char *pinned, *own = (unsigned char *)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *device, *p;
	unsigned flags;
	size_t before = free_now();
	OK(cudaMallocHost((void **)&pinned, 64 * MIB));
	OK(cudaHostRegister(own, MIB, cudaHostRegisterMapped));
	IS(cudaHostRegister(own, MIB, cudaHostRegisterMapped), cudaErrorHostMemoryAlreadyRegistered);
	cudaGetLastError();
	OK(cudaHostGetDevicePointer(&device, own, 0));
	OK(cudaHostGetFlags(&flags, own));
	TRUE(free_now() == before);
	OK(cudaMalloc(&p, MIB));
	memcpy(own, pattern, sizeof pattern);
	OK(cudaMemcpyAsync(p, own, sizeof pattern, cudaMemcpyDefault, 0));
	OK(cudaMemcpyAsync(pinned, p, sizeof pattern, cudaMemcpyDefault, 0));
	OK(cudaDeviceSynchronize());
	TRUE(memcmp(pinned, pattern, sizeof pattern) == 0);
	OK(cudaFree(p));
	OK(cudaHostUnregister(own));
	OK(cudaFreeHost(pinned));
	REFUSED(cudaMalloc(&p, too_much()));
	puts("host");
}

static void graphs(void)
{
	cudaGraph_t graph;
	cudaGraphNode_t alloc, set, drop;
	cudaGraphExec_t exec;
	cudaStream_t s;
	cudaMemAllocNodeParams a = {};
	OK(cudaStreamCreate(&s));
	OK(cudaGraphCreate(&graph, 0));
	a.poolProps.allocType = cudaMemAllocationTypePinned;
	a.poolProps.location.type = cudaMemLocationTypeDevice;
	a.bytesize = 64 * MIB;
	OK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &a));
	cudaMemsetParams m = {};
	m.dst = a.dptr;
	m.elementSize = 1;
	m.width = MIB;
	m.height = 1;
	OK(cudaGraphAddMemsetNode(&set, graph, &alloc, 1, &m));
	OK(cudaGraphAddMemFreeNode(&drop, graph, &set, 1, a.dptr));
	OK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0));
	for (int i = 0; i < 3; i++)
		OK(cudaGraphLaunch(exec, s));
	OK(cudaStreamSynchronize(s));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaDeviceGraphMemTrim(0));
	OK(cudaGraphCreate(&graph, 0));
	a.bytesize = too_much();
	/* Memory of a graph may be refused when the node is made, or when the graph is, or with the launch. */
	cudaError_t made = cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &a);
	if (made == cudaSuccess) {
		OK(cudaGraphAddMemFreeNode(&drop, graph, &alloc, 1, a.dptr));
		made = cudaGraphInstantiate(&exec, graph, NULL, NULL, 0);
	}
	if (made == cudaSuccess) {
		made = cudaGraphLaunch(exec, s);
		OK(cudaGraphExecDestroy(exec));
	}
	IS(made, cudaErrorMemoryAllocation);
	cudaGetLastError();
	OK(cudaGraphDestroy(graph));
	OK(cudaDeviceGraphMemTrim(0));
	OK(cudaStreamDestroy(s));
	puts("graphs");
}

static void called(void *data)
{
	++*(int *)data;
}

static void capture(void)
{
	cudaStream_t s;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaStreamCaptureStatus status;
	void *p, *q;
	int calls = 0;
	size_t nodes;
	OK(cudaMalloc(&p, MIB));
	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	OK(cudaMallocAsync(&q, MIB, s));
	OK(cudaMemcpyAsync(q, p, MIB, cudaMemcpyDeviceToDevice, s));
	work<<<1, 32, 0, s>>>((int *)q);
	OK(cudaGetLastError());
	OK(cudaLaunchHostFunc(s, called, &calls));
	OK(cudaFreeAsync(q, s));
	OK(cudaStreamIsCapturing(s, &status));
	TRUE(status == cudaStreamCaptureStatusActive);
	OK(cudaStreamEndCapture(s, &graph));
	OK(cudaGraphGetNodes(graph, NULL, &nodes));
	OK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0));
	for (int i = 0; i < 4; i++)
		OK(cudaGraphLaunch(exec, s));
	OK(cudaStreamSynchronize(s));
	printf("capture %zu nodes, %d calls\n", nodes, calls);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	/* What would wait for the device may not be called while a stream is captured. */
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	IS(cudaMalloc(&q, MIB), cudaErrorStreamCaptureUnsupported);
	IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
	cudaGetLastError();
	REFUSED(cudaMalloc(&q, too_much()));
	OK(cudaDeviceGraphMemTrim(0));
	OK(cudaStreamDestroy(s));
	OK(cudaFree(p));
}

/* The parent makes a handle of its memory; a child that uses CUDA for the first time opens it. */
static void ipc(void)
{
	int to[2], from[2];
	cudaIpcMemHandle_t handle;
	char done = 0;
	TRUE(pipe(to) == 0 && pipe(from) == 0);
	pid_t child = fork();
	if (child == 0) {
		void *p;
		close(to[1]);
		if (read(to[0], &handle, sizeof handle) != sizeof handle)
			_exit(2);
		OK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess));
		OK(cudaIpcCloseMemHandle(p));
		TRUE(write(from[1], &done, 1) == 1);
		exit(0);
	}
	void *p;
	close(to[0]);
	close(from[1]);
	OK(cudaMalloc(&p, 64 * MIB));
	OK(cudaIpcGetMemHandle(&handle, p));
	TRUE(write(to[1], &handle, sizeof handle) == sizeof handle);
	TRUE(read(from[0], &done, 1) == 1);
	int status;
	TRUE(waitpid(child, &status, 0) == child && status == 0);
	OK(cudaFree(p));
	REFUSED(cudaMalloc(&p, too_much()));
	puts("ipc");
}

static void streams(void)
{
	cudaStream_t s[16];
	cudaEvent_t e[16];
	void *p;
	int calls = 0, least, greatest;
	float ms;
	OK(cudaMalloc(&p, MIB));
	OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	for (int i = 0; i < 16; i++) {
		OK(cudaStreamCreateWithPriority(&s[i], cudaStreamNonBlocking, i % 2 ? least : greatest));
		OK(cudaEventCreate(&e[i]));
	}
	for (int i = 0; i < 16; i++) {
		if (i)
			OK(cudaStreamWaitEvent(s[i], e[i - 1], 0));
		OK(cudaMemsetAsync(p, i, MIB, s[i]));
		work<<<4, 128, 0, s[i]>>>((int *)p);
		OK(cudaGetLastError());
		OK(cudaLaunchHostFunc(s[i], called, &calls));
		OK(cudaEventRecord(e[i], s[i]));
	}
	for (int i = 0; i < 16; i++)
		OK(cudaStreamSynchronize(s[i]));
	OK(cudaEventSynchronize(e[15]));
	OK(cudaEventQuery(e[15]));
	OK(cudaEventElapsedTime(&ms, e[0], e[15]));
	TRUE(ms >= 0);
	printf("streams %d calls, priorities %d to %d\n", calls, least, greatest);
	for (int i = 0; i < 16; i++) {
		OK(cudaEventDestroy(e[i]));
		OK(cudaStreamDestroy(s[i]));
	}
	OK(cudaFree(p));
	REFUSED(cudaMalloc(&p, too_much()));
}

static void launches(void)
{
	int *p, blocks, host_table[1024] = { 7 };
	float c[16] = { 2 };
	void *at;
	size_t bytes;
	cudaFuncAttributes a;
	OK(cudaMalloc(&p, MIB));
	OK(cudaMemcpyToSymbol(table, host_table, sizeof host_table));
	OK(cudaMemcpyToSymbol(constants, c, sizeof c));
	OK(cudaGetSymbolAddress(&at, table));
	OK(cudaGetSymbolSize(&bytes, table));
	TRUE(bytes == sizeof host_table);
	host_table[0] = 0;
	OK(cudaMemcpyFromSymbol(host_table, table, sizeof host_table));
	TRUE(host_table[0] == 7);
	OK(cudaFuncGetAttributes(&a, work));
	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, work, 256, 0));
	TRUE(blocks > 0);
	for (int i = 0; i < 100; i++)
		work<<<2, 256>>>(p);
	OK(cudaGetLastError());
	void *args[] = { &p };
	OK(cudaLaunchCooperativeKernel((const void *)work, dim3(2), dim3(32), args, 0, 0));
	OK(cudaDeviceSynchronize());
	work<<<1, 2048>>>(p);
	TRUE(cudaGetLastError() != cudaSuccess);
	REFUSED(cudaMalloc(&at, too_much()));
	OK(cudaFree(p));
	printf("launches, symbol of %zu bytes\n", bytes);
}

static void mixed(void)
{
	CUcontext context, primary;
	CUdeviceptr d;
	void *p;
	size_t left, total, before;
	DRIVER(cuInit(0));
	DRIVER(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cudaFree(0));
	DRIVER(cuCtxGetCurrent(&context));
	TRUE(context == primary);
	before = free_now();
	DRIVER(cuMemAlloc(&d, 64 * MIB));
	OK(cudaMalloc(&p, 64 * MIB));
	DRIVER(cuMemGetInfo(&left, &total));
	TRUE(total == total_now() && left == before - 128 * MIB);
	OK(cudaFree((void *)d));
	DRIVER(cuMemFree((CUdeviceptr)p));
	TRUE(free_now() == before);
	TRUE(cuMemAlloc(&d, too_much()) == CUDA_ERROR_OUT_OF_MEMORY);
	REFUSED(cudaMalloc(&p, too_much()));
	DRIVER(cuDevicePrimaryCtxRelease(0));
	puts("mixed");
}

static pthread_barrier_t all_there;

static void *one_of_many(void *number)
{
	unsigned seed = (unsigned)(uintptr_t)number;
	OK(cudaSetDevice(0));
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < 50; i++) {
		void *p = NULL, *q;
		size_t bytes = (1 + rand_r(&seed) % 8) * MIB;
		OK(cudaMalloc(&p, bytes));
		OK(cudaMemsetAsync(p, i, bytes, cudaStreamPerThread));
		OK(cudaStreamSynchronize(cudaStreamPerThread));
		if (i == 25)
			IS(cudaMalloc(&q, too_much()), cudaErrorMemoryAllocation);
		OK(cudaFree(p));
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[64];
	pthread_barrier_init(&all_there, NULL, 64);
	for (uintptr_t i = 0; i < 64; i++)
		TRUE(pthread_create(&t[i], NULL, one_of_many, (void *)i) == 0);
	for (int i = 0; i < 64; i++)
		pthread_join(t[i], NULL);
	puts("threads");
}

/* Children of a process that has not used CUDA are processes like any other. */
static void forks(void)
{
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			void *p;
			OK(cudaMalloc(&p, 16 * MIB));
			OK(cudaFree(p));
			REFUSED(cudaMalloc(&p, too_much()));
			exit(0);
		}
	for (int i = 0; i < 4; i++) {
		int status;
		TRUE(wait(&status) > 0 && status == 0);
	}
	void *p;
	OK(cudaMalloc(&p, 16 * MIB));
	OK(cudaFree(p));
	puts("forks");
}

/* 10,000 steps of a fixed sequence: of each size and family, with frees in another order. */
static void randomly(void)
{
	enum { SLOTS = 64 };
	static struct { void *p; size_t bytes; bool async; } slot[SLOTS];
	unsigned seed = 20261124;
	size_t held = 0, most = 512 * MIB, refused = 0;
	cudaStream_t s;
	OK(cudaStreamCreate(&s));
	for (int i = 0; i < 10000; i++) {
		int at = rand_r(&seed) % SLOTS;
		if (slot[at].p) {
			if (slot[at].async)
				OK(cudaFreeAsync(slot[at].p, s));
			else
				OK(cudaFree(slot[at].p));
			held -= slot[at].bytes;
			slot[at].p = NULL;
			continue;
		}
		size_t bytes = 1 + rand_r(&seed) % (i % 10 ? 4 * MIB : 64 * MIB);
		if (held + bytes > most)
			continue;
		slot[at].bytes = bytes;
		slot[at].async = rand_r(&seed) % 3 == 0;
		OK(slot[at].async ? cudaMallocAsync(&slot[at].p, bytes, s) : cudaMalloc(&slot[at].p, bytes));
		held += bytes;
		if (i % 1000 == 0) {
			void *q;
			REFUSED(cudaMalloc(&q, too_much()));
			refused++;
		}
	}
	for (int i = 0; i < SLOTS; i++)
		if (slot[i].p)
			OK(slot[i].async ? cudaFreeAsync(slot[i].p, s) : cudaFree(slot[i].p));
	OK(cudaStreamSynchronize(s));
	OK(cudaStreamDestroy(s));
	printf("random %zu refused\n", refused);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "linear", linear }, { "pitched", pitched }, { "managed", managed }, { "arrays", arrays }, { "async", async },
	{ "host", host }, { "graphs", graphs }, { "capture", capture }, { "ipc", ipc }, { "streams", streams },
	{ "launches", launches }, { "mixed", mixed }, { "threads", threads }, { "forks", forks }, { "random", randomly },
};

static bool starts_without_cuda(const char *name)
{
	return strcmp(name, "ipc") == 0 || strcmp(name, "forks") == 0;
}

int main(int argc, char **argv)
{
	fill_pattern();
	for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof cases[0]; i++) {
		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		size_t before = 0;
		if (!starts_without_cuda(argv[1])) {
			cudaDeviceProp d;
			OK(cudaGetDeviceProperties(&d, 0));
			cap_is_seen(d.totalGlobalMem);
			work<<<1, 1>>>(NULL); /* loads the code of this program */
			OK(cudaDeviceSynchronize());
			before = free_now();
		}
		cases[i].run();
		cap_is_seen(total_now());
		if (before)
			all_is_free(before);
		OK(cudaDeviceReset());
		return 0;
	}
	fprintf(stderr, "usage: runtime CASE\n");
	return 2;
}
