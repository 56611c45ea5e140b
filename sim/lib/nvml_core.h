/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the simulated libnvidia-ml.so.1 share. The ABI comes from NVIDIA's own header, with every
 * name in it public; nothing else is.
 */
#ifndef GPUSIM_NVML_CORE_H
#define GPUSIM_NVML_CORE_H

/* Both the versioned and the unversioned functions are defined here, each with the type the header gives. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include <string.h>

#include "client.h"

#define ALL_ONES 0xFFFFFFFFu /* an instance id that is none */
#define MAX_TEXT (GPUSIM_MAX_TEXT + 1)
#define MAX_INSTANCES 64

/* What nvmlDevice_t's handle points to: a GPU, or a MIG device of one. Handles are never freed, so that a
 * stale one is an error and not a crash. */
struct nvmlDevice_st {
	int minor;
	bool mig;
	unsigned gi, ci; /* of a MIG device */
};

/* What OP_GPU_INFO says. */
struct gpu_info {
	uint64_t minor, index, total, reserved, cc_major, cc_minor, sms, arch, brand, domain, bus, device, pci_id,
		pci_subsystem, numa, context_cost, nvlinks, max_mig, threads_per_sm, bar1;
	char uuid[96], name[96], serial[32], pci_bus_id[32];
};

/* One MIG device, or one GPU instance without any, as OP_MIG_INSTANCES says. */
struct instance {
	uint64_t gi, profile_id, start, size, ci, memory, profile, ci_start, ci_slices;
	char uuid[96];
};

/* One GPU instance profile as OP_MIG_PROFILE says. */
struct profile {
	uint64_t id, memory, slices, sms, instances, copy, decoders, encoders, jpeg, ofa, remaining;
	uint64_t nplacements;
	struct { uint64_t start, size; } placement[32];
	char name[96];
};

/* nvml_enter: NVML_SUCCESS while the library is initialised. */
nvmlReturn_t nvml_enter(void);

/* What every function of the header that is not simulated answers. */
nvmlReturn_t nvml_unsupported(void);

/* nvml_status maps a status of the wire. */
nvmlReturn_t nvml_status(int status);

/* nvml_resolve checks a handle: initialised, known, and a GPU that this process sees. */
nvmlReturn_t nvml_resolve(nvmlDevice_t device);

/* nvml_gpu is nvml_resolve, and refuses MIG handles. */
nvmlReturn_t nvml_gpu(nvmlDevice_t device);

/* nvml_call asks GPU minor, and so does nvml_call3. reply may be NULL. */
nvmlReturn_t nvml_call(int minor, uint32_t op, uint64_t arg0, uint64_t arg1, const char *text,
		       struct gpusim_reply *reply);
nvmlReturn_t nvml_call3(int minor, uint32_t op, uint64_t arg0, uint64_t arg1, uint64_t arg2,
	struct gpusim_reply *reply);

/* nvml_vals asks GPU minor and demands n values. */
nvmlReturn_t nvml_vals(int minor, uint32_t op, uint64_t arg0, uint64_t *vals, size_t n);

nvmlReturn_t nvml_info(int minor, struct gpu_info *info);

/* The GPUs that this process sees, in NVML's order. */
int nvml_count(void);
int nvml_minor(int index);
int nvml_index(int minor); /* -1: not seen */
nvmlDevice_t nvml_handle(int minor);

/* nvml_mig_handle is one handle for each (GPU, GPU instance, compute instance). */
nvmlReturn_t nvml_mig_handle(int minor, unsigned gi, unsigned ci, nvmlDevice_t *device);
bool nvml_is_mig_handle(const struct nvmlDevice_st *handle);

/* nvml_instances lists a GPU's MIG devices and the GPU instances without any, at most MAX_INSTANCES. Those of one GPU
 * instance follow each other. */
nvmlReturn_t nvml_instances(int minor, struct instance *list, int *count);

/* nvml_instance_of finds the instance behind a MIG handle as it is now. */
nvmlReturn_t nvml_instance_of(nvmlDevice_t device, struct instance *out);

/* nvml_profile asks for a profile by NVML_GPU_INSTANCE_PROFILE_*, nvml_profile_by_id by its id. */
nvmlReturn_t nvml_profile(int minor, unsigned profile, struct profile *out);
nvmlReturn_t nvml_profile_by_id(int minor, unsigned id, struct profile *out);

/* nvml_profile_name is the name of a MIG device's profile: "1g.10gb", or "1c.3g.40gb" where it is not all of its GPU
 * instance. */
void nvml_profile_name(const struct instance *inst, const struct profile *p, char *out, size_t size);

/* nvml_give_gi makes a handle for a GPU instance, nvml_give_ci one for a compute instance in it. nvml_read_gi checks a
 * handle and reads the instance as it is now; nvml_compute_slices is how many slices the compute profile with that id
 * has, 0 where the GPU instance has no such profile. */
nvmlReturn_t nvml_give_gi(int minor, uint64_t gi, nvmlGpuInstance_t *out);
nvmlReturn_t nvml_give_ci(nvmlGpuInstance_t instance, uint64_t ci, nvmlComputeInstance_t *out);
nvmlReturn_t nvml_read_gi(nvmlGpuInstance_t instance, struct instance *out, int *minor);
nvmlReturn_t nvml_compute_slices(nvmlGpuInstance_t instance, unsigned profile, unsigned *slices);

/* nvml_copy gives a string out, or INSUFFICIENT_SIZE. */
nvmlReturn_t nvml_copy(const char *from, char *to, unsigned length);

/* nvml_events_in_child is run by the child of a fork: no thread waits on an event set there. */
void nvml_events_in_child(void);

/* The driver that this build belongs to: 550, 580 or 615. */
extern const unsigned gpusim_driver_major;
extern const int gpusim_cuda_version;

#define TRY(call)                          \
	do {                               \
		nvmlReturn_t try_ = (call); \
		if (try_ != NVML_SUCCESS)  \
			return try_;       \
	} while (0)

#define NEED(condition)                                     \
	do {                                                \
		if (!(condition))                           \
			return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)

#endif
