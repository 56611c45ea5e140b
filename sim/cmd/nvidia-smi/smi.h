/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * nvidia-smi of a simulated node. It asks the node's libnvidia-ml.so.1, as the driver's program does.
 */
#ifndef GPUSIM_SMI_H
#define GPUSIM_SMI_H

#include <nvml.h>
#include <stdbool.h>
#include <stddef.h>

#define VALUE 96	  /* room for one value as text */
#define MAX_GPUS 64
#define EXIT_USAGE 2	  /* wrong use */
#define EXIT_NO_DEVICE 6  /* nvidia-smi's status if a GPU is missing */
#define EXIT_NO_DRIVER 9  /* and if no driver answers */

/* The GPUs that a command is about. */
struct gpus {
	nvmlDevice_t device[MAX_GPUS];
	unsigned index[MAX_GPUS];
	unsigned count;
};

/* options that several commands have */
struct options {
	const char *ids;    /* -i: indexes, UUIDs or bus addresses, by commas; NULL: all */
	const char *fields; /* --query-gpu or --query-compute-apps */
	const char *types;  /* -d of -q, NULL: all */
	unsigned rounds;    /* of a monitor, 0: until a signal */
	unsigned seconds;   /* between two rounds */
	bool csv, header, units, apps;
};

/* smi_fail prints what NVML answered, and returns the status of the program. */
int smi_fail(nvmlReturn_t ret);

/* smi_value writes one of the values that --query-gpu knows; unit becomes its unit, NULL if it has none. An answer that
 * is not a value becomes "[N/A]" or the like. False: there is no such value. */
bool smi_value(nvmlDevice_t device, const char *name, char value[VALUE], const char **unit);

int smi_list(const struct gpus *gpus);				     /* -L */
int smi_report(const struct gpus *gpus, const struct options *o);    /* -q */
int smi_table(const struct gpus *gpus);				     /* no argument */
int smi_version(void);						     /* --version */
int smi_query(const struct gpus *gpus, const struct options *o);     /* --query-gpu */
int smi_apps(const struct gpus *gpus, const struct options *o);	     /* --query-compute-apps */
int smi_compute_mode(const struct gpus *gpus, const char *mode);     /* -c */
int smi_dmon(const struct gpus *gpus, const struct options *o);
int smi_pmon(const struct gpus *gpus, const struct options *o);

#endif
