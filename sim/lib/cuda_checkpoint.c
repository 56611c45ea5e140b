/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: what a process has on the GPUs goes to the host's memory and comes back, while its calls wait. The other
 * process is named as the daemon sees it, and both have to see the GPU.
 */
#include "cuda_core.h"

enum { STATES = 3 };

/* One step on every GPU on which the process has something; what has been done is undone where one refuses. */
static CUresult step(int pid, uint64_t which, uint64_t undo, int from, int *state)
{
	struct device *list;
	uint64_t now = 0;
	bool found = false;
	TRY(cuda_enter());
	NEED(pid > 0);
	int n = cuda_devices(&list);
	for (int i = 0; i < n; i++) {
		uint64_t args[GPUSIM_NARGS] = { (uint64_t)pid, GPUSIM_CHECKPOINT_STATE };
		CUresult ret = cuda_call(i, GPUSIM_OP_CHECKPOINT, args, &now, 1);
		if (ret == CUDA_ERROR_INVALID_VALUE)
			continue; /* it has nothing there */
		if (!ret && from >= 0 && (int)now != from)
			return CUDA_ERROR_ILLEGAL_STATE;
		args[1] = which;
		if (!ret && which != GPUSIM_CHECKPOINT_STATE)
			ret = cuda_call(i, GPUSIM_OP_CHECKPOINT, args, &now, 1);
		args[1] = undo;
		while (ret && i-- > 0)
			cuda_call(i, GPUSIM_OP_CHECKPOINT, args, NULL, 0);
		if (ret)
			return ret;
		found = true;
	}
	NEED(found && now < STATES);
	if (state)
		*state = (int)now;
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	NEED(state);
	return step(pid, GPUSIM_CHECKPOINT_STATE, GPUSIM_CHECKPOINT_STATE, -1, state);
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread)
{
	NEED(thread);
	TRY(step(pid, GPUSIM_CHECKPOINT_STATE, GPUSIM_CHECKPOINT_STATE, -1, NULL));
	*thread = pid;
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	(void)args; /* it takes no time here */
	return step(pid, GPUSIM_CHECKPOINT_LOCK, GPUSIM_CHECKPOINT_UNLOCK, CU_PROCESS_STATE_RUNNING, NULL);
}

CUresult cuCheckpointProcessCheckpoint(int pid, void *args)
{
	(void)args;
	return step(pid, GPUSIM_CHECKPOINT_SAVE, GPUSIM_CHECKPOINT_RESTORE, CU_PROCESS_STATE_LOCKED, NULL);
}

CUresult cuCheckpointProcessRestore(int pid, void *args)
{
	(void)args;
	return step(pid, GPUSIM_CHECKPOINT_RESTORE, GPUSIM_CHECKPOINT_SAVE, CU_PROCESS_STATE_CHECKPOINTED, NULL);
}

CUresult cuCheckpointProcessUnlock(int pid, void *args)
{
	(void)args;
	return step(pid, GPUSIM_CHECKPOINT_UNLOCK, GPUSIM_CHECKPOINT_LOCK, CU_PROCESS_STATE_LOCKED, NULL);
}
