/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the library's files share. No lock of a process is held while it calls the dynamic loader. While it calls the
 * driver it holds none but a pool's own, that of handles and that of small allocations.
 */
#ifndef KERF_H
#define KERF_H

#include <pthread.h>
#include <stdbool.h>

#include "abi.h"
#include "region.h"

/* What is called of the driver and not wrapped. */
#define KERF_CALLED(X)                       \
	X(cuCtxGetDevice)                    \
	X(cuGreenCtxDestroy)                 \
	X(cuEventCreate)                     \
	X(cuEventDestroy_v2)                 \
	X(cuEventQuery)                      \
	X(cuEventRecord)                     \
	X(cuEventRecord_ptsz)                \
	X(cuEventElapsedTime)                \
	X(cuCtxGetCurrent)                   \
	X(cuCtxPushCurrent_v2)               \
	X(cuCtxPopCurrent_v2)                \
	X(cuStreamGetCtx)                    \
	X(cuDeviceGetCount)                  \
	X(cuDeviceGetUuid)                   \
	X(cuDeviceGetUuid_v2)                \
	X(cuDeviceGetMemPool)                \
	X(cuDeviceGetDefaultMemPool)         \
	X(cuMemPoolGetAttribute)             \
	X(cuStreamGetDevice)                 \
	X(cuStreamIsCapturing)               \
	X(cuStreamIsCapturing_ptsz)          \
	X(cuThreadExchangeStreamCaptureMode) \
	X(cuArrayGetMemoryRequirements)      \
	X(cuMipmappedArrayGetMemoryRequirements) \
	X(cuDeviceGetGraphMemAttribute)      \
	X(cuDevicePrimaryCtxGetState)        \
	X(nvmlDeviceGetUUID)

enum kerf_function {
#define WRAP(name) KERF_##name,
#include "wrapped.def"
#undef WRAP
	KERF_WRAPPED,
	KERF_BEFORE_CALLED = KERF_WRAPPED - 1,
#define X(name) KERF_##name,
	KERF_CALLED(X)
#undef X
	KERF_FUNCTIONS
};

/* elf.c: functions of the C library, found without asking a dlsym that is this library's own; the path of the
 * folder that this library lies in; and which of two objects, named by an address in each, comes first in the
 * order in which names are looked up. */
void *kerf_libc(const char *name);
bool kerf_folder(char *path, size_t size);
bool kerf_comes_before(const void *one, const void *other);
/* Of an object: an address that its dynamic section tells; and whether another one lies in it. */
struct dl_phdr_info;
int kerf_iterate(int (*each)(struct dl_phdr_info *, size_t, void *), void *data);
const void *kerf_at(const struct dl_phdr_info *info, uintptr_t where);
bool kerf_within(const struct dl_phdr_info *info, const void *address);

/* deep.c: how many objects are loaded; and leads the imports of objects to this library that have ended past it, or
 * would, of those that were loaded when there were from already. */
size_t kerf_objects(void);
void kerf_lead(size_t from);

/* dl.c: what an object is to call by a name that leads it to there; NULL: it does not know yet. NULL: that is as it
 * should be. And the C library's own. */
void *kerf_instead(const char *name, void *there);
struct kerf_loader {
	void *(*sym)(void *, const char *);
	void *(*vsym)(void *, const char *, const char *);
	void *(*open)(const char *, int);
	void *(*mopen)(long, const char *, int);
	char *(*error)(void);
};
const struct kerf_loader *kerf_loader(void);

/* resolve.c: the driver's own function; NULL where there is no driver, or it has none. */
void *kerf_real(enum kerf_function f);
#define KERF_REAL(name) ((__typeof__(&name))kerf_real(KERF_##name))
/* Declares real, the driver's own function, or returns otherwise from the wrapper. */
#define KERF_NEED(name, otherwise)                        \
	__typeof__(&name) real = KERF_REAL(name);         \
	if (!real)                                        \
		return otherwise

/* The wrapper that stands for what the driver or the loader answered; the answer itself where none does. */
void *kerf_route(void *found);
/* The wrapper of a name, if a driver that was found has such a function; else NULL. */
void *kerf_wrapper(const char *name);
/* Of a name that is wrapped: is it a function of a loaded library, too? */
void kerf_load(void); /* finds the functions of the libraries that are loaded */
enum kerf_known { KERF_NOT_WRAPPED, KERF_LOADED, KERF_ABSENT };
enum kerf_known kerf_known(const char *name, void **wrapper);

/* variant.c: which of the wrapped functions cuGetProcAddress means by a name; -1: none. And: does a name, with any
 * suffix for versions and streams, stand for a function that allocates? */
#define KERF_KNOWN_UP_TO 13020 /* the newest CUDA version whose names are known */
int kerf_variant(const char *const *names, const char *name, int version, uint64_t flags);
bool kerf_allocates(const char *name);
/* resolve.c: what stands for an allocating function that is not known: it rejects each call. version 0: it is
 * unknown. */
void *kerf_rejecting(const char *name, int version);

/* retainers.c: whether a process that counts nothing may have the GPU's files of one that has ended. Only one
 * thread calls it at a time. counts says whether a process of this pid namespace counts. */
bool kerf_may_keep(bool (*counts)(int pid, uint64_t here), uint64_t here);

/* region.c: the counters. A device is its place in the limits page. */
#define KERF_NO_PLACE (-1)
/* The place of managed memory of a device: it is charged there, too, and the agent knows that no process is listed with
 * it. Charges, entries and pools have it; all else takes the place of the device. */
#define KERF_MANAGED(place) ((place) == KERF_NO_PLACE ? KERF_NO_PLACE : (place) + KERF_DEVICES)
#define KERF_DEVICE(place) ((place) < KERF_DEVICES ? (place) : (place) - KERF_DEVICES)
int kerf_find(const unsigned char uuid[16]);
void kerf_register(void);
bool kerf_take(int place, uint64_t bytes);
/* Counts a call that is refused for want of room. */
void kerf_refused(int place);
/* Counts a function that was replaced by kerf_rejecting. */
void kerf_rejected(void);
/* Writes "libkerf: " and the texts, up to a NULL, as a line on stderr. */
void kerf_say(const char *const *texts);
void kerf_give(int place, uint64_t bytes);
void kerf_force(int place, uint64_t bytes); /* counts what the driver has given, also past the limit */
/* Managed memory is rejected here. */
bool kerf_rejects_managed(void);
/* The limit, and what of it is gone; both 0 where there is none. */
void kerf_size(int place, uint64_t *limit, uint64_t *used);

/* What a context of a device takes, 0: nothing is put aside, KERF_UNKNOWN: none was seen yet; that one begins to be
 * made, or has been; and that what was taken for it is the driver's overhead now, which the agent counts once it has
 * seen it. */
uint64_t kerf_context_size(int place);
/* What a context takes at most if its size is not known; 0: the size is known, or no bound is. */
uint64_t kerf_context_bound(int place);
/* The least that a context of this region was seen to take; 0: none was seen. */
uint64_t kerf_context_least(int place);
void kerf_making(bool begins);
void kerf_hand_over(int place, uint64_t bytes);

/* All that is left, if it is as much as least, else 0; whether something handed over was not taken over yet, of this
 * process or of any; that of bytes handed over only so many stay; and whether there is more than the limit. */
uint64_t kerf_take_rest(int place, uint64_t least);
uint64_t kerf_left_of(int place);
/* Changes when the agent moves bytes from the counters to the overhead. */
uint64_t kerf_moves(int place);
bool kerf_waits(int place);
bool kerf_anybody_waits(int place);
/* A process of this region makes a context now, on any device. */
bool kerf_anybody_makes(void);
void kerf_wait_with(int place, uint64_t bytes, uint64_t less);
bool kerf_over(int place);

/* first.c: the first context of a device of which none was seen yet. Takes the room for it; 0: none is needed, because
 * the size has become known, or there is none. Then waits until the agent has seen it; false: it does not fit. */
uint64_t kerf_first_begin(int place);
bool kerf_first_fits(int place, uint64_t bytes);
/* Takes the bound for a context, or the rest of the room if the bound does not fit; 0: there is no room. The caller has
 * called kerf_making. */
uint64_t kerf_take_bound(int place, uint64_t bound);
/* Waits until the agent has seen the contexts of this process for which a bound was taken. */
void kerf_await_own(int place);
/* Waits until so much room may be there, because the agent has seen contexts of the grant. Returns true at once if the
 * room is there already. False: none of them waits for that, or the agent has seen none for too long. With turns, a
 * wait in which the agent sees contexts may be longer. */
bool kerf_await_room(int place, uint64_t bytes, bool turns);
/* The least room in which a context is made. */
uint64_t kerf_least_room(int place);

/* The account of a device's time, and its percent: 0 where time is not counted. NULL: there is none. */
struct kerf_total *kerf_account(int place, uint64_t *percent);

/* device.c: the place of a device, and of that of the current context. */
int kerf_place(CUdevice device);
CUresult kerf_here(int *place);

/* self.c: what this process knows. It begins again, all zero, in a child after fork. */
enum kerf_kind {
	KERF_POINTER = 1,
	KERF_ARRAY,
	KERF_MIPMAP,
	KERF_OF_CONTEXTS = KERF_MIPMAP, /* those before can go with a context */
	KERF_HANDLE,
	KERF_MAPPING,
	KERF_NODE,
	KERF_CAPTURE,
	KERF_GRAPH,
	KERF_EXEC,
	KERF_TEAM,
};

struct kerf_pool;
struct kerf_block;
struct kerf_entry {
	struct kerf_entry *next;
	uint64_t key, bytes;
	CUcontext context;      /* what it goes with; NULL: it stays */
	struct kerf_pool *pool; /* what it is part of; NULL: it is booked by itself */
	struct kerf_entry *physical; /* what a handle or a mapping stands for */
	uint64_t peak; /* of a graph's memory; bytes is what it comes to at its end */
	uint64_t origin; /* of a part of a pool: see idle.h; of an executable graph: see launch.c */
	struct kerf_block *block; /* of the driver's, which it shares with others; NULL: it shares none */
	bool leaves; /* its block: the driver is being asked to free it */
	int kind, place;
};

#define KERF_SHARDS 64
#define KERF_BUCKETS (1 << 15)
#define KERF_BLOCK_BUCKETS 4096
#define KERF_MAX_CUDEVICES 64

struct kerf_self {
	struct kerf_slot *_Atomic slot;
	_Atomic int place[KERF_MAX_CUDEVICES]; /* of each CUdevice, plus 1; 0: not known */
	_Atomic bool tired[KERF_DEVICES];      /* it has waited for the agent in vain */
	_Atomic bool graphs;                   /* graphs with memory have been seen */
	_Atomic bool freed;                    /* a pool may give memory back when the program waits */
	struct kerf_pool *_Atomic pools;
	struct kerf_clock *_Atomic clock; /* of throttle.c */
	pthread_mutex_t registering, making, handles, graph;
	struct kerf_entry *_Atomic tiles; /* of sparse.c; changed with handles held */
	/* Who allocates what may share a block holds packing of its device meanwhile; packed guards the blocks. */
	pthread_mutex_t packing[KERF_DEVICES], packed;
	struct kerf_block *blocks, *spare_block, *block[KERF_BLOCK_BUCKETS];
	unsigned char *chunk; /* guarded by making, as what follows */
	size_t left;
	struct kerf_entry *spare;
	pthread_mutex_t shard[KERF_SHARDS];
	struct kerf_entry *bucket[KERF_BUCKETS];
};

struct kerf_self *kerf_self(void); /* NULL: no memory */
void *kerf_memory(size_t bytes);   /* zeroed, kept for good */
struct kerf_entry *kerf_entry(void);
void kerf_drop(struct kerf_entry *entry);
void kerf_put(struct kerf_entry *entry);
struct kerf_entry *kerf_remove(int kind, uint64_t key); /* the caller's to put back or to drop */
struct kerf_entry *kerf_remove_context(CUcontext context);  /* all that goes with it, as a list */
/* The entry of a kind whose bytes from its key on have the address. The caller keeps others from removing it. */
struct kerf_entry *kerf_covering(int kind, uint64_t address);

/* charge.c: what an allocation takes; what it came to is kept under a key, or all of it goes back. */
struct kerf_charge {
	struct kerf_entry *entry;
	uint64_t bytes;
	int place;
};

uint64_t kerf_round(uint64_t bytes); /* to whole blocks of the driver's */
CUresult kerf_begin(struct kerf_charge *c, int place, uint64_t bytes);
CUresult kerf_begin_here(struct kerf_charge *c, uint64_t bytes);
void kerf_cancel(struct kerf_charge *c);
/* Corrects a charge by what the driver made of it; false: that is more than there is. */
bool kerf_correct(struct kerf_charge *c, uint64_t bytes);
void kerf_keep(struct kerf_charge *c, int kind, uint64_t key);
/* The first counts no refusal: it is for who tries again. */
bool kerf_take_with_room(int place, uint64_t bytes);
bool kerf_take_or_make_room(int place, uint64_t bytes);
/* A charge that ends with the driver's result; kept with the current context. */
CUresult kerf_end(struct kerf_charge *c, CUresult ret, int kind, uint64_t key);
/* The end of a free, of which e was removed before the driver was asked. */
CUresult kerf_freed(struct kerf_entry *e, CUresult ret);

/* vmm.c, with handles held: one more holder of what a handle stands for, NULL: it is not known; and one less. */
struct kerf_entry *kerf_hold(CUmemGenericAllocationHandle handle);
void kerf_let_go(struct kerf_entry *physical);
/* The lock of handles; NULL: there is no memory for it. */
pthread_mutex_t *kerf_lock_handles(void);

/* multicast.c: what was bound to an object that has ended is held no more. */
void kerf_team_ended(struct kerf_entry *team);

/* sparse.c: after an array's end with ret, what was mapped into it is held no more. */
struct kerf_entry *kerf_unmapped(const void *array);
CUresult kerf_array_ended(struct kerf_entry *tiles, CUresult ret);

/* pool.c */
void kerf_pool_freed(const struct kerf_entry *part);
#define KERF_ALL_PLACES (-2)
/* Corrects what is booked of a device's pools. */
void kerf_pools(int place);
/* Takes bytes, of which some are missing, once pools have given back as much as that. */
bool kerf_take_from_pools(int place, uint64_t bytes);

/* graph.c: memory that a stream's capture allocates and frees. */
CUresult kerf_captured(CUdevice device, CUstream stream, bool per_thread, CUdeviceptr ptr, uint64_t bytes);
void kerf_captured_free(CUstream stream, bool per_thread, CUdeviceptr ptr);

#endif
