/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the simulated libcuda.so.1 share.
 */
#ifndef GPUSIM_CUDA_CORE_H
#define GPUSIM_CUDA_CORE_H

#include <string.h>

#include "client.h"
#include "cuda_abi.h"

#define GRANULARITY ((uint64_t)2 << 20)
#define MAX_TEXT (GPUSIM_MAX_TEXT + 1)
#define CUDA_LIMITS 7

/* What cuInit read of a GPU. A CUdevice is an index into the devices, in CUDA's order after
 * CUDA_VISIBLE_DEVICES. */
struct device {
	int minor;
	uint64_t total, reserved, cc_major, cc_minor, sms, domain, bus, device, pci_id, subsystem_id, threads_per_sm;
	uint64_t stream_bytes; /* of each stream; 0: nothing */
	bool sliced;	       /* processes use it in time slices */
	char uuid[96], name[96];
	uint64_t instance;	  /* the MIG device that it is; 0: a GPU */
	int mps_at;		  /* under MPS: its place among the server's GPUs */
	bool mps;		  /* the process is a client of MPS on it */
	struct gpusim_conn *conn; /* the process's hold on this GPU */
};

/* Contexts are kept for good, so that a destroyed one is an error and not a crash. */
struct CUctx_st {
	CUdevice device;
	uint64_t id; /* the daemon's; 0: destroyed, or a primary context that is not active */
	unsigned flags, api_version, refs;
	bool primary;
	CUcontext green_of; /* the primary context of a green one; NULL: it is none */
	/* When the last launch will be done: on any of its streams, on the legacy default stream or one that waits for it,
	 * and on the legacy default stream. Moments are of the process's clock on the device, see cuda_clock.c. */
	uint64_t done_at, blocking_at, legacy_at;
	size_t limit[CUDA_LIMITS]; /* CU_LIMIT_*, 0: the default */
	uint64_t grown;   /* bytes taken for limits above their defaults */
	int cache_config;
	CUcontext peers[GPUSIM_MAX_MINORS]; /* whose memory its GPU may access */
	struct CUctx_st *next;
};

enum origin {
	LINEAR,		  /* the daemon's, of a context */
	POOLED,		  /* a block of a pool, or of a device's graphs */
	MANAGED,	  /* see cuda_managed.c */
	IMPORTED,	  /* another process's, by an IPC handle */
	IMPORTED_POINTER, /* another process's, of a shared pool */
	GRAPHICS,	  /* a graphics driver's, mapped; freed by nothing here */
	EXTERNAL,	  /* mapped of an external memory; owner holds it */
	MODULE,		  /* the variables of a module */
	HOST,		  /* the host's, which the GPU can reach */
};

/* What a pointer stands for. */
struct allocation {
	CUdeviceptr ptr;
	uint64_t bytes; /* as asked for: what may be touched */
	enum origin origin;
	CUdevice device;
	CUcontext context; /* NULL: it outlives contexts */
	uint64_t handle;   /* the daemon's address */
	uint64_t taken;	   /* POOLED: the block's size; MANAGED: the host's range; IMPORTED: how often it was opened */
	void *owner;	   /* LINEAR: its block, if it shares one; POOLED: the pool; MANAGED: its pages */
	struct allocation *next;
};

/* cuda_mu guards every table of the library. It is not held while the daemon is asked, so that a GPU that
 * hangs does not hold up the others. */
extern pthread_mutex_t cuda_mu;

/* cuda_enter: CUDA_SUCCESS once cuInit has succeeded in this very process. */
CUresult cuda_enter(void);

CUresult cuda_status(int status);
CUresult cuda_device(CUdevice device, struct device **out);
int cuda_devices(struct device **list);

/* cuda_select applies CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES to the n devices in list, which are ordered
 * by PCI address; returns how many are left, in CUDA's order. */
int cuda_select(struct device *list, int n, const char *order, const char *visible);

/* cuda_instances puts, in the place of each GPU in MIG mode, the instances whose capability nodes this process can
 * reach; cuda_one_instance leaves the first of them. Both return how many devices are left. */
int cuda_instances(struct device *list, int n);
int cuda_one_instance(struct device *list, int n);

/* cuda_call asks a device's GPU; with vals, exactly n values must come. */
CUresult cuda_call(CUdevice device, uint32_t op, const uint64_t args[GPUSIM_NARGS], uint64_t *vals, size_t n);

/* cuda_current: the calling thread's context, which must be alive. */
CUresult cuda_current(CUcontext *context);

/* cuda_remember keeps a copy; cuda_forget takes it out again; cuda_holds finds the one that holds
 * [ptr, ptr+bytes). */
CUresult cuda_remember(const struct allocation *a);
bool cuda_forget(CUdeviceptr ptr, struct allocation *out);
bool cuda_holds(CUdeviceptr ptr, size_t bytes, struct allocation *out);

/* cuda_block_take finds room for a small allocation in its context's blocks, and says where; cuda_block_put gives it
 * back. cuda_forget_blocks drops those of a context that ends; cuda_mu is held. */
#define BLOCK_MOST ((uint64_t)1 << 20) /* the largest allocation that shares a block */
CUresult cuda_block_take(struct allocation *a);
CUresult cuda_block_put(const struct allocation *a);
void cuda_forget_blocks(CUcontext context);

/* cuda_opened adds by to how often memory at an address was opened by IPC handles, and says how often that is now: 0
 * where it is another context's, of which nothing is changed. False: it is not open. */
bool cuda_opened(CUdeviceptr ptr, CUcontext context, int by, unsigned *opens);

/* cuda_managed_move brings pages to the GPU or to the host; cuda_managed_end drops the host's side. */
CUresult cuda_managed_move(const struct allocation *a, CUdeviceptr ptr, uint64_t bytes, bool to_gpu);
void cuda_managed_end(const struct allocation *a);

/* cuda_pools_settle gives back what pools need not keep: the program has waited for a stream, an event or a context. */
CUresult cuda_pools_settle(CUresult ret);

/* cuda_pools_reset drops all that pools and graphs of a device hold; cuda_forget_pooled is its part for the
 * blocks in use. */
void cuda_pools_reset(CUdevice device);
void cuda_forget_pooled(CUdevice device);

/* cuda_context_new makes a context, green where it has a primary one; cuda_context_end ends either. */
CUresult cuda_context_new(CUcontext *context, unsigned flags, CUdevice device, CUcontext green_of);
CUresult cuda_context_end(CUcontext context);

/* cuda_context_grow takes what limits above their defaults cost; the launch that needs it fails without. */
CUresult cuda_context_grow(CUcontext context);

/* cuda_bytes_*: contents of small allocations, by address. */
void cuda_bytes_write(uint64_t to, const void *from, size_t bytes);
void cuda_bytes_read(void *to, uint64_t from, size_t bytes);
void cuda_bytes_drop(uint64_t from, uint64_t bytes);

/* cuda_array_place: where a part of an array begins, which has to lie in it, and the bytes from row to row and slice to
 * slice. at and extent are bytes, rows and slices. */
CUresult cuda_array_place(CUarray array, const size_t at[3], const size_t extent[3], uint64_t *begin, uint64_t *row,
	uint64_t *slice);

/* Has a stream, by the number of cuda_stream_id, functions to call yet? */
bool cuda_callbacks_pending(CUcontext context, uint64_t stream);
void cuda_callbacks_wait(CUcontext context, uint64_t stream);

/* cuda_prohibited: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for a call that this thread may not make while a stream is
 * captured. */
CUresult cuda_prohibited(void);

/* cuda_function_name: NULL for one that is of no loaded module. */
const char *cuda_function_name(CUfunction function);
/* cuda_function_time checks a launch and says what time it asks for, 0: none. cuda_run does it. */
CUresult cuda_function_time(CUfunction function, uint64_t blocks, uint64_t threads, void **params, uint64_t *ns);
CUresult cuda_run(CUfunction function, uint64_t blocks, uint64_t threads, uint64_t ns, CUstream stream,
		  bool per_thread);
/* cuda_volume: the product of a grid's or a block's sides; 0 when one is 0 or it does not fit. */
uint64_t cuda_volume(unsigned x, unsigned y, unsigned z);

/* The graph that a stream is captured into, or NULL. */
CUresult cuda_stream_capture(CUstream stream, bool per_thread, CUgraph *graph);
CUresult cuda_stream_set_capture(CUstream stream, bool per_thread, CUgraph graph);
CUresult cuda_capture_alloc(CUdeviceptr *ptr, size_t bytes, CUdevice device, CUstream stream, bool per_thread,
			    bool *captured);
CUresult cuda_capture_free(CUdeviceptr ptr, CUstream stream, bool per_thread, bool *captured);
CUresult cuda_graph_add_alloc(CUgraph graph, CUgraphNode *out, CUdevice device, size_t bytes, CUdeviceptr *ptr);
CUresult cuda_graph_add_free(CUgraph graph, CUgraphNode *out, CUdeviceptr ptr);
CUresult cuda_graph_add_kernel(CUgraph graph, CUgraphNode *out, CUfunction function, uint64_t blocks,
			       uint64_t threads, uint64_t asked_ns);

/* cuda_round: to whole blocks; bytes is at most UINT64_MAX - GRANULARITY. */
static inline uint64_t cuda_round(uint64_t bytes)
{
	return (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
}

/* cuda_storage_drop ends what the runtime keeps in a context; each value has such a function, or NULL. */
typedef void (*cuda_storage_end)(CUcontext context, void *key, void *value);
void cuda_storage_drop(CUcontext context);

/* cuda_forget_memory and the like drop what lived in a context that is being destroyed. */
void cuda_forget_memory(CUcontext context);
void cuda_forget_streams(CUcontext context);
void cuda_forget_events(CUcontext context);

/* cuda_hold: physical memory that a handle stands for and that has bytes from offset on, held as by a mapping;
 * cuda_let_go is its end. */
struct physical;
CUresult cuda_hold(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes, struct physical **out);
CUresult cuda_let_go(struct physical *p);
/* cuda_hold_mapped: the same of what is mapped at an address; cuda_hold_again: once more of what is held. */
CUresult cuda_hold_mapped(CUdeviceptr ptr, uint64_t bytes, struct physical **out);
void cuda_hold_again(struct physical *p);
CUdevice cuda_physical_device(const struct physical *p);
bool cuda_has_tiles(CUmemGenericAllocationHandle handle); /* memory that may be mapped into sparse arrays */

/* cuda_physical_of makes a handle of a multicast object, cuda_team finds that behind a handle (NULL: it is none).
 * cuda_team_ready: has it all its GPUs? cuda_team_end is for the last holder of its handle. */
struct team;
CUresult cuda_physical_of(struct team *team, uint64_t bytes, CUmemGenericAllocationHandle *handle);
struct team *cuda_team(CUmemGenericAllocationHandle handle);
bool cuda_team_ready(const struct team *t);
void cuda_team_end(struct team *t);
bool cuda_multicast(CUdevice device); /* has this GPU multicast objects? */

/* cuda_mipmap_of makes a mipmapped array in memory that is held, which has so much room; the array holds it, too. */
CUresult cuda_mipmap_of(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels,
			struct physical *memory, uint64_t room);

/* cuda_external_end is the end of what was mapped of an external memory. */
CUresult cuda_external_end(const struct allocation *a);

/* cuda_array_region: the bytes of a part of an array without its own memory, which must lie in it.
 * cuda_array_unmap lets go what is mapped into it. */
CUresult cuda_array_region(const CUarrayMapInfo *m, uint64_t *bytes);
void cuda_array_unmap(const void *array);

/* cuda_touch: may [ptr, ptr+bytes) be touched? What is managed comes to the GPU by it. */
CUresult cuda_touch(CUdeviceptr ptr, size_t bytes);

/* cuda_mapped: is [ptr, ptr+bytes) within one mapped and accessible stretch? */
bool cuda_mapped(CUdeviceptr ptr, size_t bytes);

/* cuda_stream_busy_until: when a stream's work will be done; INVALID_HANDLE for one that is not there. */
CUresult cuda_stream_busy_until(CUstream stream, bool per_thread, uint64_t *when);
/* cuda_stream_after: the moment before which the next work of a stream does not begin. */
CUresult cuda_stream_after(CUstream stream, bool per_thread, uint64_t *when);
/* cuda_stream_id: the number that the daemon knows a stream by. */
CUresult cuda_stream_id(CUstream stream, bool per_thread, uint64_t *id);
/* cuda_stream_context: the context of a stream; the current one for a default stream. */
CUresult cuda_stream_context(CUstream stream, bool per_thread, CUcontext *context);
/* cuda_stream_settings: as the stream was made. */
CUresult cuda_stream_settings(CUstream stream, bool per_thread, unsigned *flags, int *priority);
/* cuda_stream_extend notes that a stream is busy until a moment. */
void cuda_stream_extend(CUstream stream, bool per_thread, uint64_t when);

uint64_t cuda_now(void); /* CLOCK_MONOTONIC, nanoseconds */
void cuda_sleep_until(uint64_t when);

/* cuda_moment: has the process's clock on a device passed a moment? If so, real is when; else soonest is the earliest
 * time at which it can. cuda_wait_for returns when it has. */
struct cuda_moment {
	bool passed;
	uint64_t soonest, real;
};
CUresult cuda_moment(CUdevice device, uint64_t moment, struct cuda_moment *out);
CUresult cuda_wait_for(CUdevice device, uint64_t moment);

extern const unsigned gpusim_driver_major;
extern const int gpusim_cuda_version;

#define TRY(call)                      \
	do {                           \
		CUresult try_ = (call); \
		if (try_)              \
			return try_;   \
	} while (0)

/* Defines a function that programs find by its name, and its prototype. */
#define API(name, params)                                                \
	__attribute__((visibility("default"))) CUresult name params;    \
	CUresult name params
/* Defines one in its two forms: for the legacy default stream, and with the suffix for per-thread default streams. */
#define STREAM_API(name, suffix, params, call)  \
	API(name, params)                       \
	{                                       \
		const bool per_thread = false;  \
		return call;                    \
	}                                       \
	API(name##suffix, params)               \
	{                                       \
		const bool per_thread = true;   \
		return call;                    \
	}

#define NEED(condition)                                  \
	do {                                             \
		if (!(condition))                        \
			return CUDA_ERROR_INVALID_VALUE; \
	} while (0)

#endif
