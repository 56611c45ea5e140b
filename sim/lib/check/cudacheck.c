/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cudacheck NAME: one scenario against libcuda.so.1; ends with 1 and the place at the first surprise.
 */
#include "cuda.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const CUmemAllocationProp prop = { .type = 1, .location = { 1, 0 } };

/* Prints what is visible: for the tests of CUDA_VISIBLE_DEVICES and of masked sockets. */
static void devices(void)
{
	int n = 0;
	printf("%d", CALL(cuInit)(0));
	if (CALL(cuDeviceGetCount)(&n) == 0)
		for (int i = 0; i < n; i++) {
			char id[32];
			EQ(CALL(cuDeviceGetPCIBusId)(id, sizeof id, i), 0);
			printf(" %s", id);
		}
	puts("");
}

typedef CUresult record_make(void **, size_t, size_t);
typedef CUresult record_end(void *, size_t *);
typedef CUresult flags_of(CUcontext, unsigned *, const void **);

/* The export tables that CUDA's runtimes 11 to 13 ask for, and one that a driver does not have. */
static void tables(void)
{
	static const struct {
		unsigned char uuid[16];
		size_t bytes; /* the first word; 0: it is a function */
	} all[] = {
		{ "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9", 88 },
		{ "\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66", 56 },
		{ "\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc", 24 },
		{ "\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2", 24 },
		{ "\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2", 616 },
		{ "\x0c\xa5\x0b\x8c\x10\x04\x92\x9a\x89\xa7\xd0\xdf\x10\xe7\x72\x86", 16 },
		{ "\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93", 0 },
		{ "\x19\x5b\xcb\xf4\xd6\x7d\x02\x4a\xac\xc5\x1d\x29\xce\xa6\x31\xae", 24 },
		{ "\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e", 32 },
	};
	const void *const *t = NULL;
	CUuuid uuid;
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		memcpy(uuid.bytes, all[i].uuid, sizeof all[i].uuid);
		EQ(CALL(cuGetExportTable)((const void **)&t, &uuid), 0);
		if (all[i].bytes)
			EQ((uintptr_t)t[0], all[i].bytes);
		for (size_t f = 1; f < all[i].bytes / sizeof *t; f++)
			EQ(t[f] != NULL || (all[i].bytes == 88 && f == 10), 1);
	}
	unsigned flags = 1;
	EQ(((flags_of *)(uintptr_t)t[2])(NULL, &flags, (const void **)&t), 0);
	EQ(flags == 0 && t == NULL, 1);
	void *record;
	size_t a;
	memcpy(uuid.bytes, all[7].uuid, sizeof uuid.bytes);
	EQ(CALL(cuGetExportTable)((const void **)&t, &uuid), 0);
	EQ(((record_make *)(uintptr_t)t[1])(&record, 7, 8), 0);
	EQ(((record_end *)(uintptr_t)t[2])(record, &a), 0);
	EQ(a, 7);
	memset(uuid.bytes, 0x11, sizeof uuid.bytes);
	EQ(CALL(cuGetExportTable)((const void **)&t, &uuid), CUDA_ERROR_INVALID_VALUE);
	EQ(t == NULL, 1);
}

/* A debugger reads and writes the variables by name. It gets no interface, and the reason. */
static void debugger(void)
{
	static const char *const since_12_9[] = { "Source", "NameAddr", "NameSize", "StringAddr", "StringSize" };
	int (*version)(uint32_t *, uint32_t *, uint32_t *) = symbol("cudbgGetAPIVersion");
	int (*api)(uint32_t, uint32_t, uint32_t, const void **) = symbol("cudbgGetAPI");
	uint32_t *flag = symbol("cudbgIpcFlag"), major, minor, revision;
	const void *table = &table;
	void *found;
	int driver, status;
	EQ(CALL(cuDriverGetVersion)(&driver), 0);
	EQ(version(&major, &minor, &revision), 0);
	EQ((int)(major * 1000 + minor * 10), driver);
	EQ(version(&major, NULL, &revision), 4);
	EQ(api(major, minor, revision, &table), 0x14);
	EQ(table == NULL, 1);
	EQ(api(major, minor, revision, NULL), 4);
	EQ(*flag, 0);
	*flag = 1;
	((void (*)(void))symbol("cudbgReportDriverApiError"))();
	EQ(((const char *)symbol("cudbgInjectionPath"))[4095], 0);
	for (size_t i = 0; i < sizeof since_12_9 / sizeof since_12_9[0]; i++) {
		char name[64];
		snprintf(name, sizeof name, "cudbgReportedDriverApiError%s", since_12_9[i]);
		EQ(dlsym(library, name) != NULL, driver >= 12090);
	}
	EQ(CALL(cuGetProcAddress_v2)("cudbgGetAPI", &found, driver, 0, &status), 0);
	EQ(found == NULL && status == 1, 1);
}

static void proc(void)
{
	CUresult (*v1)(const char *, void **, int, cuuint64_t) = CALL(cuGetProcAddress);
	CUresult (*v2)(const char *, void **, int, cuuint64_t, int *) = CALL(cuGetProcAddress_v2);
	void *f;
	int status, driver;
	EQ(CALL(cuDriverGetVersion)(&driver), 0);
	const struct {
		const char *name;
		int version;
		cuuint64_t flags;
		const char *want; /* NULL: none */
		int status;
	} cases[] = {
		{ "cuMemAlloc", 12000, 0, "cuMemAlloc_v2", 0 },
		{ "cuMemAlloc_v2", 12000, 0, NULL, 1 },
		{ "cuCtxCreate", 11030, 0, "cuCtxCreate_v2", 0 },
		{ "cuCtxCreate", 11040, 0, "cuCtxCreate_v3", 0 },
		{ "cuCtxCreate", 13000, 0, driver < 12050 ? "cuCtxCreate_v3" : "cuCtxCreate_v4", 0 },
		{ "cuEventElapsedTime", 13000, 0, driver < 12080 ? "cuEventElapsedTime" : "cuEventElapsedTime_v2", 0 },
		{ "cuMemAllocAsync", 11010, 0, NULL, 2 },
		{ "cuMemAllocAsync", 11020, 1, "cuMemAllocAsync", 0 },
		{ "cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz", 0 },
		{ "cuMemcpyHtoD", 6050, 2, NULL, 2 },
		{ "cuMemcpyHtoD", 6050, 1, "cuMemcpyHtoD_v2", 0 },
		{ "cuMemcpyHtoD", 2000, 0, "cuMemcpyHtoD", 0 },
		{ "cuMemcpyHtoD", 0, 0, NULL, 2 },
		{ "cuMemcpyHtoD", -1, 0, "cuMemcpyHtoD_v2", 0 },
		{ "cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds", 0 },
		{ "cuInit", 13000, 2, "cuInit", 0 },
		{ "cuGetProcAddress", 11080, 0, "cuGetProcAddress", 0 },
		{ "cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 0 },
		{ "cuMemPrefetchAsync", 12000, 2, "cuMemPrefetchAsync_ptsz", 0 },
		{ "cuMemPrefetchAsync", 12020, 2, "cuMemPrefetchAsync_v2_ptsz", 0 },
		{ "cuMemAllocFromPoolAsync", 11020, 2, "cuMemAllocFromPoolAsync_ptsz", 0 },
		{ "cuGraphInstantiate", 11040, 0, "cuGraphInstantiate_v2", 0 },
		{ "cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2", 0 },
		{ "cuMemGetMemPool", 13000, 0, driver < 13000 ? NULL : "cuMemGetMemPool", driver < 13000 ? 1 : 0 },
		{ "cuNoSuchThing", 13000, 0, NULL, 1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		void *want = cases[i].want ? symbol(cases[i].want) : NULL;
		CUresult ret = want ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
		f = &f;
		EQ(v2(cases[i].name, &f, cases[i].version, cases[i].flags, &status), 0);
		EQ(f == want, 1);
		EQ(status, cases[i].status);
		f = &f;
		EQ(v1(cases[i].name, &f, cases[i].version, cases[i].flags), ret);
		EQ(f == (want ? want : &f), 1);
		EQ(v2(cases[i].name, &f, cases[i].version, cases[i].flags, NULL), 0);
	}
	EQ(v2(NULL, &f, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(v2("cuInit", NULL, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(v2("cuInit", &f, 12000, 4, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void context(void)
{
	CUcontext a, b, got;
	CUdevice device = 9;
	CUdeviceptr ptr;
	unsigned flags, version;
	int active;
	size_t total, total2, before;
	EQ(CALL(cuDeviceGetCount)(&active), CUDA_ERROR_NOT_INITIALIZED);
	EQ(CALL(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuInit)(0), 0);
	EQ(CALL(cuInit)(0), 0);
	EQ(CALL(cuMemAlloc_v2)(&ptr, MIB), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuDeviceGet)(&device, 99), CUDA_ERROR_INVALID_DEVICE);
	EQ(CALL(cuDevicePrimaryCtxRelease_v2)(0), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuDevicePrimaryCtxRetain)(&a, 0), 0);
	EQ(CALL(cuDevicePrimaryCtxRetain)(&b, 0), 0);
	EQ(a == b, 1);
	EQ(CALL(cuCtxSetCurrent)(a), 0);
	EQ(CALL(cuMemGetInfo_v2)(&before, &total), 0);
	EQ(CALL(cuDeviceTotalMem_v2)(&total2, 0), 0);
	EQ(total, total2);
	EQ(CALL(cuCtxCreate_v2)(&b, 0, 0), 0); /* costs memory, and becomes current */
	EQ(free_now() < before, 1);
	EQ(CALL(cuCtxGetCurrent)(&got), 0);
	EQ(got == b, 1);
	EQ(CALL(cuMemAlloc_v2)(&ptr, 8 * MIB), 0);
	EQ(CALL(cuCtxGetApiVersion)(b, &version), 0);
	EQ(CALL(cuCtxDestroy_v2)(b), 0); /* and what was allocated in it goes */
	EQ(CALL(cuMemsetD8_v2)(ptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
	EQ(free_now(), before);
	EQ(CALL(cuMemFree_v2)(ptr), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuCtxDestroy_v2)(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	EQ(CALL(cuCtxPushCurrent_v2)(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	EQ(CALL(cuCtxDestroy_v2)(a), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuCtxDestroy_v2)((CUcontext)&got), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuCtxGetDevice)(&device), 0);
	EQ(device, 0);
	EQ(CALL(cuDevicePrimaryCtxRelease_v2)(0), 0);
	EQ(CALL(cuDevicePrimaryCtxGetState)(0, &flags, &active), 0);
	EQ(active, 1);
	EQ(CALL(cuDevicePrimaryCtxRelease_v2)(0), 0);
	EQ(CALL(cuDevicePrimaryCtxGetState)(0, &flags, &active), 0);
	EQ(active, 0);
	EQ(CALL(cuMemAlloc_v2)(&ptr, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	EQ(CALL(cuDevicePrimaryCtxRetain)(&b, 0), 0);
	EQ(CALL(cuDevicePrimaryCtxReset_v2)(0), 0);
	EQ(CALL(cuMemAlloc_v2)(&ptr, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	EQ(CALL(cuCtxPopCurrent_v2)(&got), 0);
	EQ(CALL(cuCtxPopCurrent_v2)(&got), CUDA_ERROR_INVALID_CONTEXT);
}

static void linear(void)
{
	CUdeviceptr ptr, other;
	char host[16] = "full";
	start();
	size_t before = free_now();
	EQ(CALL(cuMemAlloc_v2)(&ptr, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemAlloc_v2)(&ptr, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(CALL(cuMemAlloc_v2)(&ptr, before + 1), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(free_now(), before);
	EQ(CALL(cuMemAlloc_v2)(&ptr, 3 * MIB), 0);
	EQ(free_now(), before - 4 * MIB);
	EQ(CALL(cuMemAllocAsync)(&other, MIB, NULL), 0);
	EQ(free_now(), before - 36 * MIB); /* pools grow by 32 MiB */
	EQ(CALL(cuMemsetD8_v2)(ptr, 1, 3 * MIB), 0);
	EQ(CALL(cuMemsetD8_v2)(ptr, 1, 3 * MIB + 1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemcpyHtoD_v2)(ptr + 3 * MIB - 16, host, 16), 0);
	EQ(CALL(cuMemcpyDtoH_v2)(host, ptr, 16), 0);
	EQ(host[0], 1);
	EQ(CALL(cuMemcpyDtoD_v2)(other, ptr, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemcpyDtoH_v2)(host, other, 16), 0);
	EQ(host[0], 0);
	EQ(CALL(cuMemcpyDtoD_v2)(other, ptr + 2 * MIB, MIB), 0);
	EQ(CALL(cuMemcpyDtoH_v2)(host, other + MIB - 16, 16), 0);
	EQ(strcmp(host, "full"), 0);
	EQ(CALL(cuMemFree_v2)(ptr + 1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemFree_v2)(ptr), 0);
	EQ(CALL(cuMemFree_v2)(ptr), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemFree_v2)(0), 0);
	EQ(CALL(cuMemFreeAsync)(other, NULL), 0);
	EQ(CALL(cuStreamSynchronize)(NULL), 0);
	EQ(free_now(), before);
}

static void vmm(void)
{
	CUmemGenericAllocationHandle h, again;
	CUmemAccessDesc access = { { 1, 0 }, 3 };
	CUdeviceptr va, other;
	size_t unit;
	start();
	size_t before = free_now();
	EQ(CALL(cuMemGetAllocationGranularity)(&unit, &prop, 0), 0);
	EQ(unit, 2 * MIB);
	EQ(CALL(cuMemCreate)(&h, unit + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemCreate)(&h, before / unit * unit + unit, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(CALL(cuMemCreate)(&h, 4 * unit, &prop, 0), 0);
	EQ(free_now(), before - 4 * unit);
	EQ(CALL(cuMemAddressReserve)(&va, 16 * unit, 0, 0, 0), 0);
	EQ(CALL(cuMemAddressReserve)(&other, unit, 0, va, 0), 0);
	EQ(other != va, 1);
	EQ(CALL(cuMemAddressFree)(other, unit), 0);
	EQ(CALL(cuMemMap)(other, unit, 0, h, 0), CUDA_ERROR_INVALID_VALUE); /* not reserved */
	EQ(CALL(cuMemMap)(va, 8 * unit, 0, h, 0), CUDA_ERROR_INVALID_VALUE); /* more than there is */
	EQ(CALL(cuMemMap)(va, 4 * unit, 0, h, 0), 0);
	EQ(CALL(cuMemMap)(va + unit, unit, 0, h, 0), CUDA_ERROR_INVALID_VALUE); /* taken */
	EQ(CALL(cuMemMap)(va + 4 * unit, 4 * unit, 0, h, 0), 0);
	EQ(CALL(cuMemsetD8_v2)(va, 0, 1), CUDA_ERROR_INVALID_VALUE); /* no access yet */
	EQ(CALL(cuMemSetAccess)(va, 8 * unit, &access, 1), 0);
	EQ(CALL(cuMemsetD8_v2)(va, 0, 8 * unit), 0);
	EQ(CALL(cuMemsetD8_v2)(va, 0, 8 * unit + 1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemRelease)(h), 0);
	EQ(CALL(cuMemRelease)(h), CUDA_ERROR_INVALID_VALUE);
	EQ(free_now(), before - 4 * unit); /* mapped still */
	EQ(CALL(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)(va + unit)), 0);
	EQ(again, h);
	EQ(CALL(cuMemAddressFree)(va, 16 * unit), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemUnmap)(va, unit), CUDA_ERROR_INVALID_VALUE); /* half a mapping */
	EQ(CALL(cuMemUnmap)(va, 8 * unit), 0);
	EQ(free_now(), before - 4 * unit); /* held still */
	EQ(CALL(cuMemRelease)(h), 0);
	EQ(free_now(), before);
	EQ(CALL(cuMemMap)(va, unit, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemAddressFree)(va, 16 * unit), 0);
	EQ(CALL(cuMemAddressFree)(va, 16 * unit), CUDA_ERROR_INVALID_VALUE);
}

static uint64_t ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void launch(void)
{
	CUmodule module;
	CUfunction sleeper, kernel;
	CUstream stream;
	CUevent a, b;
	float took;
	uint64_t ns = 120000000, from;
	void *params[] = { &ns };
	start();
	EQ(CALL(cuModuleLoadData)(&module, "image"), 0);
	EQ(CALL(cuModuleGetFunction)(&sleeper, module, "gpusim_sleep_ns"), 0);
	EQ(CALL(cuModuleGetFunction)(&kernel, module, "other"), 0);
	EQ(CALL(cuStreamCreate)(&stream, 1), 0);
	EQ(CALL(cuEventCreate)(&a, 0), 0);
	EQ(CALL(cuEventCreate)(&b, 0), 0);
	EQ(CALL(cuLaunchKernel)(kernel, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuLaunchKernel)(kernel, 1, 1, 1, 1024, 2, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuLaunchKernel)(kernel, 64, 1, 1, 256, 1, 1, 0, stream, NULL, NULL), 0);
	EQ(CALL(cuStreamSynchronize)(stream), 0);
	from = ms();
	EQ(CALL(cuEventRecord)(a, stream), 0);
	EQ(CALL(cuLaunchKernel)(sleeper, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), 0);
	EQ(CALL(cuEventRecord)(b, stream), 0);
	EQ(CALL(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
	EQ(CALL(cuEventQuery)(b), CUDA_ERROR_NOT_READY);
	EQ(CALL(cuStreamSynchronize)(stream), 0);
	EQ(ms() - from >= 119, 1);
	EQ(CALL(cuEventElapsedTime)(&took, a, b), 0);
	EQ(took >= 119 && took < 10000, 1);
	EQ(CALL(cuCtxSynchronize)(), 0);
	EQ(CALL(cuStreamDestroy_v2)(stream), 0);
	EQ(CALL(cuStreamQuery)(stream), CUDA_ERROR_INVALID_HANDLE);
	EQ(CALL(cuModuleUnload)(module), 0);
	EQ(CALL(cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static int in_child(void (*body)(void))
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		body();
		_exit(0);
	}
	EQ(waitpid(pid, &status, 0), pid);
	return status;
}

static void child_before(void)
{
	CUdeviceptr ptr;
	start();
	EQ(CALL(cuMemAlloc_v2)(&ptr, 2 * MIB), 0);
}

static void child_after(void)
{
	int n;
	size_t free, total;
	EQ(CALL(cuInit)(0), CUDA_ERROR_NOT_INITIALIZED);
	EQ(CALL(cuDeviceGetCount)(&n), CUDA_ERROR_NOT_INITIALIZED);
	EQ(CALL(cuMemGetInfo_v2)(&free, &total), CUDA_ERROR_NOT_INITIALIZED);
}

static void fork_(void)
{
	CUdeviceptr ptr;
	EQ(in_child(child_before), 0); /* before cuInit: a separate process */
	start();
	EQ(CALL(cuMemAlloc_v2)(&ptr, 2 * MIB), 0);
	size_t before = free_now();
	EQ(in_child(child_after), 0);
	EQ(free_now(), before); /* the child's end took nothing of the parent's */
	EQ(CALL(cuMemFree_v2)(ptr), 0);
}

/* Takes memory, forks a child, prints its pid and ends. The child runs body, and then lives on until it is killed. */
static void leave(void (*body)(void))
{
	CUdeviceptr ptr;
	start();
	EQ(CALL(cuMemAlloc_v2)(&ptr, 2 * MIB), 0);
	pid_t pid = fork();
	if (pid == 0) {
		body();
		close(1); /* who started the parent waits for these to close */
		close(2);
		for (;;)
			pause();
	}
	printf("%d\n", (int)pid);
}

static void nothing(void)
{
}

static void orphan(void)
{
	leave(nothing);
}

/* The descriptors are not for another program. */
static void becomes(void)
{
	execlp("sh", "sh", "-c", "exec >&- 2>&-; exec sleep 1000", NULL);
	_exit(1);
}

static void orphan_exec(void)
{
	leave(becomes);
}

/* A child of clone(2) itself runs no handler of forks. */
static void clones(void)
{
	int status;
	start();
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		child_after();
		_exit(0);
	}
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
}

/* Has work for ten minutes, and waits to be killed. */
static void work(void)
{
	CUmodule module;
	CUfunction sleeper;
	uint64_t ns = 600000000000;
	void *params[] = { &ns };
	start();
	EQ(CALL(cuModuleLoadData)(&module, "image"), 0);
	EQ(CALL(cuModuleGetFunction)(&sleeper, module, "gpusim_sleep_ns"), 0);
	EQ(CALL(cuLaunchKernel)(sleeper, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), 0);
	for (;;)
		pause();
}

/* Prints how many multiprocessors the process may use. */
static void processors(void)
{
	int n;
	EQ(CALL(cuInit)(0), 0);
	EQ(CALL(cuDeviceGetAttribute)(&n, 16, 0), 0);
	printf("%d\n", n);
}

/* Allocates and frees until that fails, and prints how. */
static void until(void)
{
	CUdeviceptr p;
	CUresult ret;
	start();
	EQ(CALL(cuMemAlloc_v2)(&p, 1024 * MIB), 0);
	while (!(ret = CALL(cuMemAlloc_v2)(&p, MIB)) && !(ret = CALL(cuMemFree_v2)(p)))
		usleep(5000);
	printf("%d\n", ret);
}

/* Prints how many KiB of free memory four streams take, and how many are missing after the end of the streams, and of
 * another context with a stream. */
static void streams(void)
{
	CUstream s[4];
	CUcontext context = start(), again;
	size_t before = free_now();
	for (int i = 0; i < 4; i++)
		EQ(CALL(cuStreamCreate)(&s[i], 0), 0);
	size_t with = free_now();
	for (int i = 0; i < 4; i++)
		EQ(CALL(cuStreamDestroy_v2)(s[i]), 0);
	size_t after = free_now();
	EQ(CALL(cuCtxCreate_v2)(&again, 0, 0), 0);
	EQ(CALL(cuStreamCreate)(&s[0], 0), 0);
	EQ(CALL(cuCtxDestroy_v2)(again), 0);
	EQ(CALL(cuCtxSetCurrent)(context), 0);
	printf("%zu %zu %zu\n", (before - with) >> 10, (before - after) >> 10, (before - free_now()) >> 10);
}

static CUcontext shared;

static void *hammer(void *unused)
{
	(void)unused;
	EQ(CALL(cuCtxSetCurrent)(shared), 0);
	for (int i = 0; i < 200; i++) {
		CUdeviceptr p[4];
		for (int j = 0; j < 4; j++)
			EQ(j % 2 ? CALL(cuMemAllocAsync)(&p[j], (uint64_t)(j + 1) * MIB, NULL)
				 : CALL(cuMemAlloc_v2)(&p[j], (uint64_t)(j + 1) * MIB), 0);
		for (int j = 0; j < 4; j++)
			EQ(j % 2 ? CALL(cuMemFreeAsync)(p[j], NULL) : CALL(cuMemFree_v2)(p[j]), 0);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[8];
	shared = start();
	size_t before = free_now();
	for (int i = 0; i < 8; i++)
		EQ(pthread_create(&t[i], NULL, hammer, NULL), 0);
	for (int i = 0; i < 8; i++)
		EQ(pthread_join(t[i], NULL), 0);
	EQ(CALL(cuCtxSynchronize)(), 0);
	EQ(free_now(), before);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);

/* Kernels of two streams that wait for the same event end together. The default stream waits for both. */
static void slices(void)
{
	CUmodule module;
	CUfunction sleeper;
	CUstream s[3] = { NULL };
	CUevent gate, end[3];
	float took;
	uint64_t first = 500000000, then = 100000000;
	void *long_[] = { &first }, *short_[] = { &then };
	start();
	EQ(CALL(cuModuleLoadData)(&module, "image"), 0);
	EQ(CALL(cuModuleGetFunction)(&sleeper, module, "gpusim_sleep_ns"), 0);
	EQ(CALL(cuStreamCreate)(&s[0], 0), 0);
	EQ(CALL(cuStreamCreate)(&s[1], 0), 0);
	EQ(CALL(cuEventCreate)(&gate, 0), 0);
	EQ(CALL(cuLaunchKernel)(sleeper, 1, 1, 1, 1, 1, 1, 0, s[0], long_, NULL), 0);
	EQ(CALL(cuEventRecord)(gate, s[0]), 0);
	EQ(CALL(cuStreamWaitEvent)(s[1], gate, 0), 0);
	for (int i = 0; i < 3; i++) {
		EQ(CALL(cuEventCreate)(&end[i], 0), 0);
		EQ(CALL(cuLaunchKernel)(sleeper, 1, 1, 1, 1, 1, 1, 0, s[i], short_, NULL), 0);
		EQ(CALL(cuEventRecord)(end[i], s[i]), 0);
	}
	EQ(CALL(cuEventQuery)(end[0]), CUDA_ERROR_NOT_READY);
	EQ(CALL(cuEventSynchronize)(end[2]), 0);
	EQ(CALL(cuEventElapsedTime)(&took, end[0], end[1]), 0);
	EQ(took > -1 && took < 1, 1);
	EQ(CALL(cuEventElapsedTime)(&took, gate, end[0]), 0);
	EQ(took >= 99, 1);
	EQ(CALL(cuEventElapsedTime)(&took, end[0], end[2]), 0);
	EQ(took >= 99, 1);
	EQ(CALL(cuStreamQuery)(s[1]), 0);
	EQ(CALL(cuCtxSynchronize)(), 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {
		{ "devices", devices }, { "proc", proc }, { "tables", tables },
		{ "debugger", debugger },
		{ "context", context }, { "linear", linear }, { "vmm", vmm },
		{ "launch", launch },	{ "fork", fork_ }, { "threads", threads },
		{ "orphan", orphan },	{ "orphan-exec", orphan_exec },
		{ "clone", clones },	{ "work", work },
		{ "processors", processors }, { "until", until },
		{ "streams", streams },	{ "slices", slices },
	};
	for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof scenarios[0]; i++)
		if (strcmp(argv[1], scenarios[i].name) == 0) {
			load("libcuda.so.1");
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "usage: cudacheck SCENARIO\n");
	return 2;
}
