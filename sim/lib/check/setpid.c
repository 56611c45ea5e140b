/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * setpid PID PROGRAM [ARGUMENT...]: runs a program as the process PID, which must be free, as a pid space that has come
 * round does by chance. Needs a new pid namespace, so that it takes no number of the machine's. Ends as the
 * program does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status;
	if (argc < 3)
		return 2;
	pid_t want = atoi(argv[1]);
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&want, .set_tid_size = 1 };
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid < 0) {
		perror("clone3");
		return 3;
	}
	if (pid == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(4);
	}
	while (waitpid((pid_t)pid, &status, 0) < 0)
		if (errno != EINTR)
			return 5;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
