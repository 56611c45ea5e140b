/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * gpuload: takes GPU memory and holds it. See gpuload.h.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuload.h"

/* Forks the workers before any call of CUDA, which does not survive a fork, and waits for all of them. They
 * go when this process goes, however it ends. */
static int run_workers(const struct options *o)
{
	pid_t self = getpid();
	int worst = EXIT_OK;
	for (int i = 0; i < o->workers; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			fprintf(stderr, "gpuload: fork worker %d of %d: %s\n", i + 1, o->workers, strerror(errno));
			worst = EXIT_MET_ERROR;
			break;
		}
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGTERM);
			_exit(getppid() == self ? work(o) : EXIT_MET_ERROR);
		}
	}
	for (;;) {
		int status;
		pid_t pid = wait(&status);
		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			return worst;
		if (WIFSIGNALED(status))
			fprintf(stderr, "gpuload: worker %d ended by signal %d\n", (int)pid, WTERMSIG(status));
		if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_OK)
			worst = EXIT_MET_ERROR;
	}
}

int main(int argc, char **argv)
{
	struct options o;
	bool done;
	int ret = parse_options(argc, argv, &o, &done);
	if (ret || done)
		return ret;
	if (o.tamper)
		return tamper(&o);
	return o.workers ? run_workers(&o) : work(&o);
}
