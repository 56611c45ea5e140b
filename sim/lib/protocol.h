/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the simulated driver's user side (libnvidia-ml.so.1, libcuda.so.1) and its kernel side (the gpusim
 * daemon) say to each other. One request packet, one response packet, over a SOCK_SEQPACKET unix socket:
 * DEV/nvidiactl for the system, DEV/nvidiaN for GPU N (N is the device minor). The Go side repeats the
 * numbers in sim/wire; a test compares the two.
 *
 * The daemon learns who calls from the socket's peer credentials alone. A connection to a GPU belongs to
 * the process that opened it. When its last descriptor closes, all that it holds is given back. Until then
 * a process that has ended stays in the lists. A descriptor may be a forked child's.
 *
 * DEV is found from where the library itself was loaded: DIR/lib/libX.so.1 uses DIR/dev if DIR/dev/nvidiactl
 * exists. ROOT/usr/lib/x86_64-linux-gnu/libX.so.1 of gpusim root uses the device files of ROOT/dev and the sockets of
 * ROOT/run/gpusim/dev if these exist. Otherwise DEV is /dev. No environment variable decides.
 */
#ifndef GPUSIM_PROTOCOL_H
#define GPUSIM_PROTOCOL_H

#include <stdint.h>

#define GPUSIM_VERSION 1
#define GPUSIM_MAX_TEXT 4096
#define GPUSIM_MAX_VALS 6000
#define GPUSIM_NARGS 6
#define GPUSIM_UNKNOWN UINT64_MAX /* a value that the driver cannot tell */

/* A request: this header, then text_len bytes of text (no terminator). */
struct gpusim_request {
	uint32_t version; /* GPUSIM_VERSION */
	uint32_t op;
	uint64_t arg[GPUSIM_NARGS];
	uint32_t text_len;
	uint32_t pad;
};

/* A response: this header, then nvals times uint64_t, then text_len bytes of text. Several strings in one
 * text are separated by '\n'. */
struct gpusim_response {
	int32_t status; /* GPUSIM_OK or another status */
	uint32_t nvals;
	uint32_t text_len;
	uint32_t pad;
};

/* Statuses; each library maps them to its own codes. */
#define GPUSIM_OK 0
#define GPUSIM_INVALID 1          /* argument wrong */
#define GPUSIM_NOT_SUPPORTED 2    /* this GPU or driver cannot */
#define GPUSIM_NO_PERMISSION 3    /* needs root */
#define GPUSIM_NOT_FOUND 4        /* no such pointer, context, instance */
#define GPUSIM_OUT_OF_MEMORY 5    /* past the GPU, or past a hard limit */
#define GPUSIM_LOST 6             /* the GPU fell off the bus */
#define GPUSIM_IN_USE 7
#define GPUSIM_INSUFFICIENT 8     /* no room for the instance */
#define GPUSIM_TIMEOUT 9
#define GPUSIM_UNKNOWN_ERROR 10
#define GPUSIM_INVALID_LIMIT 11   /* limit below present use, root cgroup, not a cgroup v2 directory */
#define GPUSIM_BAD_VERSION 12     /* library and daemon are not of one build */
#define GPUSIM_SERVER_GONE 13     /* the MPS server that this process is a client of */
#define GPUSIM_LOCKED 14	  /* another process has locked this one: ask again */
#define GPUSIM_CANNOT_OPEN 15	  /* a path that the caller named cannot be opened */
#define GPUSIM_BAD_ADDRESS 16	  /* the process's work has met a bad address, and its contexts are unusable */
#define GPUSIM_FAILED_LAUNCH 17	  /* the process's work has failed, and its contexts are unusable */
#define GPUSIM_NOT_READY 18	  /* the MPS server waits for the end of clients that a fault has ended */

/* System operations, on nvidiactl. */
#define GPUSIM_OP_SYSTEM 1
/* -> vals: cuda version (13040 = 13.4), driver major, number of GPUs; text: driver version, nvml version */
#define GPUSIM_OP_WAIT_EVENT 2
/* arg0 timeout in ms (at most 60000), arg1 bit mask of minors watched, arg2 bit mask of event types (NVML's
 * nvmlEventType* bits). Blocks this connection until an event raised after its previous WAIT_EVENT (the
 * first: after the connection opened), else GPUSIM_TIMEOUT.
 * -> vals: minor, event type, event data (the XID), gpu instance id, compute instance id (0xFFFFFFFF: none) */

/* GPU operations, on nvidiaN. GPUSIM_LOST is possible for each. */
#define GPUSIM_OP_GPU_INFO 16
/* -> vals: minor, index, total memory, reserved memory, compute capability major, minor, SM count, architecture
 *    (NVML_DEVICE_ARCH_*), brand (NVML_BRAND_*), pci domain, bus, device, pci device id, pci subsystem id, NUMA
 *    node (GPUSIM_UNKNOWN: none), context cost in bytes, number of NVLinks, max MIG device count, max threads
 *    per SM, BAR1 bytes (0: unknown),
 *    bytes of each stream, 1 with time slices;
 *    text: uuid ("GPU-..."), name, serial, pci bus id ("00000000:1B:00.0") */
#define GPUSIM_OP_MEMORY 17
/* arg0 MIG device (GPUSIM_MIG_DEVICE), 0: the GPU. The caller's view: a hard limit on the caller's own leaf cgroup
 * shows as the GPU's size. -> vals: total, reserved, free, used (v2 meaning: total = reserved + used + free). With a
 * limit reserved is 0 and free is what the caller can still have, so used counts what others hold of the room under the
 * limit. Then 1 for a GPU that uses the machine's memory: CUDA reports it, NVML and DCGM do not. */
#define GPUSIM_OP_UTILIZATION 18
/* -> vals: gpu percent, memory percent */
#define GPUSIM_OP_PROCESSES 19
/* arg0 offset, arg1 which list (GPUSIM_LIST_*). Processes that hold memory. -> vals: count in all, then (pid, bytes,
 * gpu instance id,
 *    compute instance id) from offset on, as many as fit (bytes GPUSIM_UNKNOWN: not available). The pid is that in the
 *    caller's pid namespace; processes outside it are left out. At most GPUSIM_MAX_PROCESSES in all */
#define GPUSIM_MAX_PROCESSES 950
#define GPUSIM_OP_TOPOLOGY 20
/* arg0 other minor -> vals: common ancestor level (NVML_TOPOLOGY_*), NVLinks between the two */
#define GPUSIM_OP_NVLINK 21
/* arg0 link -> vals: active (0, 1), remote kind (1 GPU, 2 switch), remote pci domain, bus, device, version;
 *    GPUSIM_INVALID past the last link */
#define GPUSIM_OP_MIG_MODE 22
/* -> vals: current, pending (GPUSIM_NOT_SUPPORTED on a GPU without MIG) */
#define GPUSIM_OP_MIG_PROFILE 23
/* arg0 NVML_GPU_INSTANCE_PROFILE_* -> vals: id, memory bytes, slice count, SM count, instance count, copy
 *    engines, decoders, encoders, jpeg, ofa, remaining capacity, then (start, size) of each placement; text: name */
#define GPUSIM_OP_MIG_INSTANCES 24
/* arg0 1: the MIG devices alone whose capability nodes the caller can reach; else all of them, and each GPU instance
 *    without a compute instance once
 * -> vals: count, then GPUSIM_MIG_VALS of each: gi id, profile id, start, size, ci id (0xFFFFFFFF: none), memory bytes,
 *    NVML_GPU_INSTANCE_PROFILE_*, the compute instance's start and compute slices; text: the MIG UUIDs ("MIG-...",
 *    empty without a compute instance) in the same order */
#define GPUSIM_MIG_VALS 9
/* How a MIG device is named by the two ids. */
#define GPUSIM_MIG_DEVICE(gi, ci) ((uint64_t)(gi) | (uint64_t)(ci) << 8)
#define GPUSIM_OP_SET_LIMIT 25
/* arg0 soft, arg1 hard (UINT64_MAX: none) bytes; text: absolute cgroup v2 directory, as the caller sees it */
#define GPUSIM_OP_GET_LIMIT 26
/* text: absolute cgroup v2 directory -> vals: soft, hard, current use; NOT_SUPPORTED when nothing up the tree
 *    has a limit */
#define GPUSIM_OP_RECOVERY 27
/* -> vals: recovery action (NVML_GPU_RECOVERY_ACTION_*) */

#define GPUSIM_OP_PROCESS_UTIL 28
/* arg0 microseconds since 1970 -> vals: count, then (pid, microseconds since 1970, gpu percent, memory percent) of each
 * process
 *    in the samples after it. The pid is that in the caller's pid namespace, and the
 *    host's for a process outside it */
#define GPUSIM_OP_TELEMETRY 29
/* arg0 1: with utilization and memory -> vals: milliwatts drawn, power limit, SM clock in MHz, its maximum, memory
 * clock, its maximum, degrees
 *    Celsius, ECC errors corrected, uncorrected (the limits and maxima are 0 where a model does not say them), 1 where
 *    a memory row waits to be remapped, 1 where one cannot be, why the clocks are low (nvmlClocksEventReason*); and
 *    where they are asked for those of UTILIZATION, then those of MEMORY */

#define GPUSIM_OP_COMPUTE_MODE 30
/* arg0 NVML_COMPUTEMODE_* to set, for which NO_PERMISSION is possible, or GPUSIM_UNKNOWN to leave it -> vals: the
 * mode. With EXCLUSIVE_PROCESS and PROHIBITED, CTX_CREATE answers IN_USE */

#define GPUSIM_OP_MIG_SET 31
/* arg0 MIG mode (0, 1), for which NO_PERMISSION is possible -> vals: 0 the mode is current, 1 it is pending because the
 * GPU is in use, has instances or, before Hopper, is open elsewhere, 2 it is pending until a reset that only
 * another can make */

#define GPUSIM_OP_POWER_LIMIT 32
/* arg0 milliwatts to hold the GPU to, for which NO_PERMISSION and INVALID (beyond least or most) are possible, or
 * GPUSIM_UNKNOWN to leave the limit -> vals: milliwatts of the limit, of the one that the GPU begins with, of the least
 * and the most that can be set; NOT_SUPPORTED where the model does not say them */

#define GPUSIM_OP_INSTANCE_UTIL 33
/* -> vals: count, then (gi id, gpu percent) of the last second of each MIG instance: that of its processes */

/* MIG instances. All four answer NOT_SUPPORTED outside MIG mode, and NO_PERMISSION to others than root. */
#define GPUSIM_OP_GI_CREATE 40
/* arg0 profile id, arg1 start (GPUSIM_UNKNOWN: any) -> vals: gi id; INSUFFICIENT without room */
#define GPUSIM_OP_GI_DESTROY 41
/* arg0 gi id; IN_USE while it has compute instances */
#define GPUSIM_OP_CI_CREATE 42
/* arg0 gi id, arg1 compute slices (0: all), arg2 start (GPUSIM_UNKNOWN: any) -> vals: ci id; INSUFFICIENT without room,
 * NOT_SUPPORTED where the GPU instance has no compute profile of that size */
#define GPUSIM_OP_CI_DESTROY 43
/* arg0 gi id, arg1 ci id; IN_USE while a process holds something on it */

#define GPUSIM_LIST_COMPUTE 0
#define GPUSIM_LIST_GRAPHICS 1
#define GPUSIM_LIST_MPS 2

/* What libcuda does, on nvidiaN; the connection is the process's hold on that GPU. */
#define GPUSIM_OP_CTX_CREATE 48
/* arg0 MIG device in MIG mode (0: the first one; always 0 outside MIG mode); NO_PERMISSION where the caller
 * cannot reach its capability nodes. arg1 GPUSIM_LIST_GRAPHICS: a graphics driver's context, which no compute
 * mode refuses; from then on the process is in that list, too
 * -> vals: context id (never 0). Charges the context's own memory: OUT_OF_MEMORY is possible */
#define GPUSIM_OP_CTX_DESTROY 49
/* arg0 context id; frees what was allocated in it */
#define GPUSIM_OP_ALLOC 50
/* arg0 bytes (the library has rounded up to the granularity), arg1 context id (0: none, not for
 *    KIND_LINEAR), arg2 kind (GPUSIM_KIND_*) -> vals: address (or VMM handle), unique in the process */
#define GPUSIM_OP_FREE 51
/* arg0 address or handle */
#define GPUSIM_OP_LAUNCH 52
/* arg0 context id, arg1 blocks, arg2 threads per block, arg3 stream id, arg4 nanoseconds asked for (0: by
 *    the grid's size), arg5 moment before which it does not begin -> vals: the moment at which it will be done.
 *    Moments are nanoseconds of the caller's clock on this GPU. Without time slices, that is CLOCK_MONOTONIC. With
 *    them, it stands still while other processes have their turn, and is never ahead of CLOCK_MONOTONIC */

#define GPUSIM_OP_RESIDE 53
/* arg0 address of managed memory, arg1 bytes of it that shall be on the GPU -> vals: how many are: fewer where
 * there is no room. It is charged to no limit, and other allocations push it out */
#define GPUSIM_OP_IMPORT 54
/* arg0 address that any process's memory on this GPU begins at, arg1 context id that the import goes with (0: none)
 * -> vals: bytes. The caller holds the memory, too, until OP_FREE of the address, once for each import */
#define GPUSIM_OP_MPS_SERVE 55
/* The caller is an MPS server on this GPU from now on; NOT_SUPPORTED in MIG mode and before Volta */
#define GPUSIM_OP_MPS_JOIN 56
/* arg0 pid of the MPS server (as the daemon sees it), arg1 limit of memory in bytes (GPUSIM_UNKNOWN: none), arg2
 * percent of the threads. Before the first context: the caller is a client of that server, and SERVER_GONE is the
 * answer to all that it asks for once the server has ended. NOT_FOUND: no such server; INSUFFICIENT: it is full;
 * NOT_READY: a fault has ended clients of the server on any GPU, and not all of them have exited */

#define GPUSIM_OP_CHECKPOINT 57
/* arg0 pid (as the daemon sees it), arg1 GPUSIM_CHECKPOINT_* -> vals: the state that the process is in then, 0: runs,
 * 1: locked, 2: its memory is away. IN_USE: not a step from its state; NO_PERMISSION: another user's */
#define GPUSIM_CHECKPOINT_STATE 0
#define GPUSIM_CHECKPOINT_LOCK 1
#define GPUSIM_CHECKPOINT_SAVE 2
#define GPUSIM_CHECKPOINT_RESTORE 3
#define GPUSIM_CHECKPOINT_UNLOCK 4

#define GPUSIM_OP_EXPORT 58
/* arg0 address of memory that the caller's process holds by another connection. This connection is the file that stands
 * for the memory from now on: it holds it until its last descriptor is closed, in any process, also after the process's
 * end */

#define GPUSIM_OP_CLOCK 59
/* arg0 moment of the caller's clock -> vals: the moment that it is now, the earliest CLOCK_MONOTONIC nanoseconds at
 * which it can pass arg0, and those at which it did (0: it has not) */
#define GPUSIM_OP_COPY 60
/* arg0 context id, arg1 bytes that are copied within the GPU's memory, arg2 moment before which it does not begin
 * -> vals: the moment at which it will be done */

#define GPUSIM_OP_MPS_STATE 61
/* arg0 pid of the MPS server (as the daemon sees it). OK: it takes clients; NOT_READY: see GPUSIM_OP_MPS_JOIN */

#define GPUSIM_KIND_LINEAR 1
#define GPUSIM_KIND_ASYNC 2
#define GPUSIM_KIND_VMM 3
#define GPUSIM_KIND_MANAGED 4

#endif
