/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * staticload SOCKET BYTES: takes memory of the GPU behind a device's socket with no library between, as a static
 * program that calls the kernel driver directly would, prints a line, and holds it until it is ended. Linked with
 * -static: no loader reads /etc/ld.so.preload or LD_PRELOAD for it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol.h"

struct answer {
	struct gpusim_response head;
	uint64_t vals[GPUSIM_MAX_VALS];
	char text[GPUSIM_MAX_TEXT];
};

static uint64_t call(int fd, uint32_t op, uint64_t first, uint64_t second, uint64_t third)
{
	static struct answer a;
	const struct gpusim_request r = { .version = GPUSIM_VERSION, .op = op, .arg = { first, second, third } };
	if (send(fd, &r, sizeof r, MSG_NOSIGNAL) != (ssize_t)sizeof r ||
		recv(fd, &a, sizeof a, 0) < (ssize_t)sizeof a.head || a.head.status) {
		fprintf(stderr, "staticload: operation %u: status %d\n", op, a.head.status);
		exit(9);
	}
	return a.vals[0];
}

int main(int argc, char **argv)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	if (argc != 3 || strlen(argv[1]) >= sizeof addr.sun_path) {
		fprintf(stderr, "usage: staticload SOCKET BYTES\n");
		return 2;
	}
	strcpy(addr.sun_path, argv[1]);
	/* No process uses a GPU without an open device file. */
	int file = open(argv[1], O_PATH | O_CLOEXEC), fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (file < 0 || fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
		perror("staticload: connect");
		return 9;
	}
	uint64_t bytes = strtoull(argv[2], NULL, 10), context = call(fd, GPUSIM_OP_CTX_CREATE, 0, 0, 0);
	call(fd, GPUSIM_OP_ALLOC, bytes, context, GPUSIM_KIND_LINEAR);
	printf("%llu\n", (unsigned long long)bytes);
	fflush(stdout);
	for (;;)
		pause();
}
