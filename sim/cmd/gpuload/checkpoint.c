/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is away when others take theirs, and then comes back. Each block is a separate process. Its memory
 * goes to the host as soon as it has it; that of the one before comes back then.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Becomes a gpuload that holds so much, or ends. */
static void become(uint64_t bytes, int gpu, int out)
{
	char size[32], which[16];
	snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
	snprintf(which, sizeof which, "%d", gpu);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(out, STDOUT_FILENO) >= 0)
		execl("/proc/self/exe", "gpuload", "--json", "--alloc", size, "--gpu", which, "--hold", "1h", (char *)NULL);
	_exit(EXIT_MET_ERROR);
}

/* Returns once the process has its memory, or could not have it. */
static CUresult start(uint64_t bytes, int gpu, pid_t *pid)
{
	char line[1024];
	int ends[2];
	if (pipe(ends) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pid = fork();
	if (*pid == 0)
		become(bytes, gpu, ends[1]);
	close(ends[1]);
	FILE *said = fdopen(ends[0], "r");
	bool has = *pid > 0 && said && fgets(line, sizeof line, said) && strstr(line, "\"error\":null");
	if (said)
		fclose(said);
	if (has)
		return CUDA_SUCCESS;
	if (*pid > 0)
		end(*pid);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult take_checkpoint(struct load *l, struct block *p)
{
	if (!l->cuda.checkpoint_lock || !l->cuda.checkpoint_save || !l->cuda.checkpoint_restore ||
		!l->cuda.checkpoint_unlock)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(start(p->bytes, l->device, &p->process));
	CUresult ret = l->cuda.checkpoint_lock(p->process, NULL);
	if (!ret)
		ret = l->cuda.checkpoint_save(p->process, NULL);
	if (!ret && l->away) {
		ret = l->cuda.checkpoint_restore(l->away, NULL);
		if (!ret)
			ret = l->cuda.checkpoint_unlock(l->away, NULL);
	}
	if (ret)
		end(p->process);
	else
		l->away = p->process;
	return ret;
}

void give_checkpoint(struct load *l, struct block *p)
{
	(void)l;
	end(p->process);
}
