/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a process has taken, and the ways to take it.
 */
#ifndef GPULOAD_LOAD_H
#define GPULOAD_LOAD_H

#include <stddef.h>
#include <sys/types.h>

#include "driver.h"
#include "gpuload.h"

/* CU_DEVICE_ATTRIBUTE_... */
enum { MULTIPROCESSOR_COUNT = 16, MAX_THREADS_PER_MULTIPROCESSOR = 39 };

struct block {
	CUdeviceptr ptr; /* 0: it has no address */
	size_t bytes;
	uint64_t counted; /* what it came to, where that is not what was asked for; 0: as asked for */
	union {
		CUmemGenericAllocationHandle handle; /* of vmm */
		CUarray array;
		CUmodule module;
		CUcontext context;
		CUgreenCtx green;
		CUlibrary library;
		CUexternalMemory external;
		CUmipmappedArray mipmap;
		uint64_t graphics;
		struct {
			CUgraphicsResource resource;
			CUeglStreamConnection stream;
			unsigned name; /* the graphics driver's */
		} object;
		pid_t process; /* of checkpoint */
		int file;      /* of file */
		struct {
			CUgraph graph;
			CUgraphExec exec;
		};
	};
	struct block *next;
};

struct load {
	struct driver cuda;
	CUdevice device;
	CUcontext context;
	CUmemoryPool pool;   /* of pool; made by the first block */
	CUfunction function; /* of heap; the same */
	pid_t away;	     /* of checkpoint; the process whose memory is with the host */
	int peer;	     /* who makes what is imported; -1: none yet */
	bool lone;	     /* the peer may end before it says that it has freed what was imported */
	const struct opening *how; /* how the driver was opened */
	struct block *blocks;
	uint64_t allocated;
	size_t total, free;
	bool known; /* total and free were read */
	int processors; /* multiprocessors that it sees; 0: not known */
	const char *error; /* a CUDA error's name, or a text; NULL: none */
};

/* A way to take memory: take fills in p, of which bytes is set, or leaves nothing behind. */
struct family {
	const char *name;
	CUresult (*take)(struct load *l, struct block *p);
	void (*give)(struct load *l, struct block *p);
};

/* api.c: memory in whole units, of which p->bytes is corrected. */
CUresult make_whole(struct load *l, struct block *p, int handles, CUmemGenericAllocationHandle *handle);

/* image.c */
CUresult take_mipmap(struct load *l, struct block *p);
CUresult take_external_mipmap(struct load *l, struct block *p);
void give_mipmap(struct load *l, struct block *p);
CUresult take_graphics(struct load *l, struct block *p);
void give_graphics(struct load *l, struct block *p);

/* interop.c. graphics finds a function of the simulated driver's stand-in for a graphics driver; NULL with a real
 * driver. */
void *graphics(const char *name);
enum { GRAPHICS_NO_ROOM = 5 }; /* its status */
CUresult take_gl(struct load *l, struct block *p);
CUresult take_gl_image(struct load *l, struct block *p);
CUresult take_egl(struct load *l, struct block *p);
CUresult take_vdpau(struct load *l, struct block *p);
void give_object(struct load *l, struct block *p);
CUresult take_gl_array(struct load *l, struct block *p);
CUresult take_gl_old(struct load *l, struct block *p);
void give_gl_old(struct load *l, struct block *p);
CUresult take_egl_consumer(struct load *l, struct block *p);
void give_egl_consumer(struct load *l, struct block *p);
CUresult take_egl_producer(struct load *l, struct block *p);
void give_egl_producer(struct load *l, struct block *p);
CUresult take_gl_context(struct load *l, struct block *p);
CUresult take_vdpau_context(struct load *l, struct block *p);

/* checkpoint.c */
CUresult take_checkpoint(struct load *l, struct block *p);
void give_checkpoint(struct load *l, struct block *p);

/* peer.c. offer makes memory for who asks at the input; false: it cannot. */
bool offer(struct load *l, const struct options *o);
CUresult take_ipc(struct load *l, struct block *p);
void give_ipc(struct load *l, struct block *p);
CUresult take_import(struct load *l, struct block *p);
void give_import(struct load *l, struct block *p);
CUresult take_pool_import(struct load *l, struct block *p);
void give_pool_import(struct load *l, struct block *p);
CUresult take_file(struct load *l, struct block *p);
void give_file(struct load *l, struct block *p);

/* What keep_busy did: kernels is how many ran to their end, each for --kernel. */
struct busy {
	uint64_t kernels, launches, wall_ns;
};

/* keep_busy launches kernels until --hold is over. */
CUresult keep_busy(struct load *l, const struct options *o, struct busy *b);

#define TRY(call)                      \
	do {                           \
		CUresult try_ = (call); \
		if (try_)              \
			return try_;   \
	} while (0)

#endif
