/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a debugger finds in libcuda by name. It writes the variables and sets breakpoints on the functions. Sizes are
 * those of NVIDIA's libraries. No debugger can attach here: the interface answers as if it failed to start.
 */
#include <stddef.h>
#include <stdint.h>

/* CUDBGResult of cudadebugger.h */
enum { CUDBG_SUCCESS = 0, CUDBG_ERROR_INVALID_ARGS = 4, CUDBG_ERROR_INITIALIZATION_FAILURE = 0x14 };

extern const int gpusim_cuda_version;

#define EXPORTED __attribute__((visibility("default")))
#define VARIABLE(type, name)       \
	EXPORTED extern type name; \
	type name

VARIABLE(uint32_t, cudbgApiClientPid);
VARIABLE(uint32_t, cudbgApiClientRevision);
VARIABLE(uint32_t, cudbgAttachHandlerAvailable);
VARIABLE(uint32_t, cudbgDebuggerCapabilities);
VARIABLE(uint32_t, cudbgDebuggerInitialized);
VARIABLE(uint32_t, cudbgDetachSuspendedDevicesMask);
VARIABLE(uint32_t, cudbgEnableIntegratedMemcheck);
VARIABLE(uint32_t, cudbgEnableLaunchBlocking);
VARIABLE(uint32_t, cudbgEnablePreemptionDebugging);
VARIABLE(uint32_t, cudbgIpcFlag);
VARIABLE(uint32_t, cudbgReportDriverApiErrorFlags);
VARIABLE(uint32_t, cudbgResumeForAttachDetach);
VARIABLE(uint32_t, cudbgRpcEnabled);
VARIABLE(uint32_t, cudbgSessionId);
VARIABLE(uint32_t, cudbgUseExternalDebugger);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorCode);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorFuncNameAddr);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorFuncNameSize);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorNameAddr);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorNameSize);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorSource);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorStringAddr);
VARIABLE(uint64_t, cudbgReportedDriverApiErrorStringSize);
VARIABLE(uint64_t, cudbgReportedDriverInternalErrorCode);

EXPORTED extern char cudbgInjectionPath[4096];
char cudbgInjectionPath[4096];

/* A breakpoint needs a function that no compiler folds into another. */
#define BREAKPOINT(name)           \
	EXPORTED void name(void);  \
	void name(void)            \
	{                          \
		__asm__ volatile(""); \
	}

BREAKPOINT(cudbgReportDriverApiError)
BREAKPOINT(cudbgReportDriverInternalError)
BREAKPOINT(cudbgApiAttach)
BREAKPOINT(cudbgApiDetach)

EXPORTED void cudbgApiInit(uint32_t attaches);
EXPORTED int cudbgGetAPI(uint32_t major, uint32_t minor, uint32_t revision, const void **api);
EXPORTED int cudbgGetAPIVersion(uint32_t *major, uint32_t *minor, uint32_t *revision);
EXPORTED int cudbgMain(int pid, uint32_t revision, int session, int attach, int initialized, int write_fd,
	int detach_fd, int stub_in_use, int preemption);

void cudbgApiInit(uint32_t attaches)
{
	(void)attaches;
}

int cudbgGetAPI(uint32_t major, uint32_t minor, uint32_t revision, const void **api)
{
	(void)major, (void)minor, (void)revision;
	if (!api)
		return CUDBG_ERROR_INVALID_ARGS;
	*api = NULL;
	return CUDBG_ERROR_INITIALIZATION_FAILURE;
}

/* The version is that of CUDA; the revision counts builds. */
int cudbgGetAPIVersion(uint32_t *major, uint32_t *minor, uint32_t *revision)
{
	if (!major || !minor || !revision)
		return CUDBG_ERROR_INVALID_ARGS;
	*major = (uint32_t)gpusim_cuda_version / 1000;
	*minor = (uint32_t)gpusim_cuda_version % 1000 / 10;
	*revision = 0;
	return CUDBG_SUCCESS;
}

int cudbgMain(int pid, uint32_t revision, int session, int attach, int initialized, int write_fd, int detach_fd,
	int stub_in_use, int preemption)
{
	(void)pid, (void)revision, (void)session, (void)attach, (void)initialized, (void)write_fd, (void)detach_fd;
	(void)stub_in_use, (void)preemption;
	return CUDBG_ERROR_INITIALIZATION_FAILURE;
}
