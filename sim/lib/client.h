/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The transport that libnvidia-ml.so.1 and libcuda.so.1 share: connections to the simulated kernel driver,
 * one request and one response at a time on each. Safe from any thread. The child of a fork has every connection
 * and device file open, too, and uses none of them: a connection belongs to the process that opened it.
 */
#ifndef GPUSIM_CLIENT_H
#define GPUSIM_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

/* Minors reach from 0 to GPUSIM_MAX_MINORS-1: the daemon watches GPUs by a 64-bit mask. */
#define GPUSIM_MAX_MINORS 64
/* In place of a minor: the system's socket, nvidiactl. */
#define GPUSIM_CTL (-1)

/* A status of the transport itself: the daemon has gone, or this is a child of the process that connected.
 * The daemon's own statuses (GPUSIM_*) are never negative. */
#define GPUSIM_BROKEN (-1)

struct gpusim_conn {
	pthread_mutex_t mu; /* held for one request and its response */
	int fd;             /* -1: never opened, closed, or broken */
	int file;           /* the device's file, open for as long as fd is */
	unsigned char *buf; /* a response in full, allocated by the first open */
	struct gpusim_conn *next; /* all connections, for the child of a fork */
	bool listed;
};

#define GPUSIM_CONN_INIT { .mu = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .file = -1 }

/* What a response carried. vals and text belong to the caller and are filled up to their capacities. */
struct gpusim_reply {
	uint64_t *vals;
	size_t max_vals;
	size_t nvals; /* how many the daemon sent, which may be more than max_vals */
	char *text;
	size_t max_text; /* with the terminator */
};

/* gpusim_open connects to a GPU's socket (or GPUSIM_CTL). False when it is absent, masked or not to be
 * connected to by this process. An open connection stays as it is. */
bool gpusim_open(struct gpusim_conn *c, int minor);

/* gpusim_close gives back what the connection holds, unless a child of a fork has it open, too. */
void gpusim_close(struct gpusim_conn *c);

/* gpusim_interrupt ends a call that waits in another thread: that call, and later ones, find it broken. */
void gpusim_interrupt(struct gpusim_conn *c);

/* gpusim_call sends one request and waits for its response: GPUSIM_* from the daemon, or GPUSIM_BROKEN. */
int gpusim_call(struct gpusim_conn *c, uint32_t op, const uint64_t args[GPUSIM_NARGS], const char *text,
		struct gpusim_reply *reply);

/* gpusim_export makes the file that stands for memory at an address of this process, as a descriptor with that name,
 * which gpusim_exported reads again wherever the descriptor is. The memory is held until the last copy of the
 * descriptor is closed, in whatever process. Returns GPUSIM_* or GPUSIM_BROKEN. */
int gpusim_export(int minor, uint64_t address, const char *name, int *fd);
bool gpusim_exported(int fd, char *name, size_t size);

/* gpusim_minors lists the device sockets there are, in ascending order; returns how many. Whether this
 * process can connect to them is seen by opening. */
int gpusim_minors(int minors[GPUSIM_MAX_MINORS]);

/* gpusim_node_file is the path of a file in the node's folder, DIR; false for a library that lies in none. */
bool gpusim_node_file(const char *name, char *path, size_t size);

/* gpusim_at_fork_child names a function that the child of a fork runs, once it has let go of its connections.
 * Called once per library, when that is loaded. */
void gpusim_at_fork_child(void (*child)(void));

/* gpusim_line copies line n (from 0) of a text, or as much of it as fits; false when there is none. */
bool gpusim_line(const char *text, unsigned n, char *out, size_t size);

#endif
