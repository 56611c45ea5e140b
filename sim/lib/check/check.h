/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For the programs that test the libraries from outside: symbols by name, and checks that end the program.
 */
#ifndef GPUSIM_CHECK_H
#define GPUSIM_CHECK_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void *library;

static void load(const char *name)
{
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
}

static void *symbol(const char *name)
{
	void *s = dlsym(library, name);
	if (!s) {
		fprintf(stderr, "no symbol %s\n", name);
		exit(4);
	}
	return s;
}

/* CALL(f)(args): a function of the library, with the type that its declaration gives. */
#define CALL(f) ((__typeof__(f) *)symbol(#f))

#define EQ(got, want)                                                                                          \
	do {                                                                                                   \
		long long got_ = (long long)(got), want_ = (long long)(want);                                  \
		if (got_ != want_) {                                                                           \
			fprintf(stderr, "%s:%d: %s is %lld, want %lld\n", __FILE__, __LINE__, #got, got_, want_); \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

/* Hands a descriptor to who is at the other end of a socket, and takes one. */
static inline void hand(int to, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} with = { .header = { .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	char byte = 0;
	struct iovec one = { &byte, 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with };
	memcpy(CMSG_DATA(&with.header), &fd, sizeof fd);
	EQ(sendmsg(to, &m, 0), 1);
}

static inline int handed(int from)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} with;
	char byte;
	int fd;
	struct iovec one = { &byte, 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with };
	EQ(recvmsg(from, &m, 0), 1);
	EQ(CMSG_FIRSTHDR(&m) != NULL, 1);
	memcpy(&fd, CMSG_DATA(&with.header), sizeof fd);
	return fd;
}

#endif
