/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * gpuload takes GPU memory through the CUDA driver and holds it for a while, and keeps the GPU busy. It knows the
 * driver only by dlopen, and does the same on a real one as on the simulated one.
 */
#ifndef GPULOAD_H
#define GPULOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct family;
struct handover;
struct launcher;
struct opening;

/* What the command line says. Bytes and nanoseconds. */
struct options {
	uint64_t alloc; /* 0: nothing */
	uint64_t step;  /* 0: all at once */
	uint64_t more;  /* for each line of the input; 0: it reads none */
	uint64_t hold_ns;
	const struct family *api;
	const struct opening *driver;
	const struct launcher *launch; /* NULL: no kernels */
	const struct handover *offer;  /* NULL: it makes nothing for others */
	uint64_t kernel_ns;            /* how long each takes */
	int queue;                     /* launches before it waits for them */
	int workers; /* 0: this process itself */
	int loaders; /* idle children that have the driver's files open */
	int gpu;
	bool json, touch, tamper;
	bool leave;      /* it ends once the loaders run, and frees nothing */
	bool from_input; /* what is imported is made by who is at the input */
};

enum { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_MET_ERROR = 9 };

/* parse_options reads the command line; on an error it says on stderr what to write instead and returns
 * EXIT_USAGE. *done: there is nothing more to do (--help). */
int parse_options(int argc, char **argv, struct options *o, bool *done);

/* find_api returns the way to take memory of that name, or NULL; api_names writes all names with commas. */
const struct family *find_api(const char *name);
void api_names(char *out, size_t size);

/* find_launch and launch_names are the same for the ways to launch kernels. */
const struct launcher *find_launch(const char *name);
void launch_names(char *out, size_t size);

/* find_opening and opening_names are the same for the ways to open the driver. */
const struct opening *find_opening(const char *name);
void opening_names(char *out, size_t size);
const char *opening_name(const struct opening *o);

/* find_handover and handover_names are the same for the ways to hand memory over. */
const struct handover *find_handover(const char *name);
void handover_names(char *out, size_t size);

/* tamper asks the management library for what only an administrator may change: a GPU's power limit, compute mode and
 * MIG mode, and the memory limit of this process's own cgroup. It prints a JSON line for each with NVML's answer (0:
 * done; null: the library has no such call, or there is no cgroup v2), and returns EXIT_OK if anything was done. */
int tamper(const struct options *o);

/* work allocates, reports, holds or launches, and frees; returns the process's exit status. */
int work(const struct options *o);

#endif
