/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What people read: the list of GPUs, the report of -q, the table without arguments, and the compute mode.
 */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MAX_APPS 1024

/* One value with its unit, for people. */
static const char *show(nvmlDevice_t device, const char *name, char out[VALUE])
{
	char value[VALUE] = "";
	const char *unit = NULL;
	smi_value(device, name, value, &unit);
	size_t n = strlen(value);
	if (n > 2 && value[0] == '[') { /* no brackets outside of tables by commas */
		value[n - 1] = 0;
		memmove(value, value + 1, n - 1);
	}
	snprintf(out, VALUE, "%.80s%s%s", value, unit ? " " : "", unit ? unit : "");
	return out;
}

/* The MIG devices of a GPU, as -L lists them. */
static void list_instances(nvmlDevice_t device)
{
	unsigned most = 0;
	if (nvmlDeviceGetMaxMigDeviceCount(device, &most) != NVML_SUCCESS)
		return;
	for (unsigned i = 0; i < most; i++) {
		nvmlDevice_t mig;
		char name[VALUE], uuid[VALUE];
		if (nvmlDeviceGetMigDeviceHandleByIndex(device, i, &mig) != NVML_SUCCESS ||
		    nvmlDeviceGetName(mig, name, sizeof name) != NVML_SUCCESS ||
		    nvmlDeviceGetUUID(mig, uuid, sizeof uuid) != NVML_SUCCESS)
			continue;
		const char *profile = strstr(name, " MIG ");
		printf("  MIG %-13s Device %2u: (UUID: %s)\n", profile ? profile + 5 : name, i, uuid);
	}
}

int smi_list(const struct gpus *gpus)
{
	char name[VALUE], uuid[VALUE];
	for (unsigned i = 0; i < gpus->count; i++) {
		nvmlReturn_t ret = nvmlDeviceGetName(gpus->device[i], name, sizeof name);
		if (ret == NVML_SUCCESS)
			ret = nvmlDeviceGetUUID(gpus->device[i], uuid, sizeof uuid);
		if (ret != NVML_SUCCESS) {
			printf("Unable to determine the device handle for GPU%u: %s\n", gpus->index[i], nvmlErrorString(ret));
			continue;
		}
		printf("GPU %u: %s (UUID: %s)\n", gpus->index[i], name, uuid);
		list_instances(gpus->device[i]);
	}
	return 0;
}

static const struct line {
	const char *type, *section, *label, *field;
} lines[] = {
	{ NULL, NULL, "Product Name", "name" },
	{ NULL, NULL, "Display Mode", "display_mode" },
	{ NULL, NULL, "Persistence Mode", "persistence_mode" },
	{ NULL, "MIG Mode", "Current", "mig.mode.current" },
	{ NULL, "MIG Mode", "Pending", "mig.mode.pending" },
	{ NULL, NULL, "Accounting Mode", "accounting.mode" },
	{ NULL, NULL, "Serial Number", "serial" },
	{ NULL, NULL, "GPU UUID", "uuid" },
	{ NULL, NULL, "Minor Number", "minor_number" },
	{ NULL, NULL, "VBIOS Version", "vbios_version" },
	{ NULL, "PCI", "Bus", "pci.bus" },
	{ NULL, "PCI", "Device", "pci.device" },
	{ NULL, "PCI", "Domain", "pci.domain" },
	{ NULL, "PCI", "Device Id", "pci.device_id" },
	{ NULL, "PCI", "Bus Id", "pci.bus_id" },
	{ NULL, "PCI", "Sub System Id", "pci.sub_device_id" },
	{ NULL, NULL, "Fan Speed", "fan.speed" },
	{ "PERFORMANCE", NULL, "Performance State", "pstate" },
	{ "MEMORY", "FB Memory Usage", "Total", "memory.total" },
	{ "MEMORY", "FB Memory Usage", "Reserved", "memory.reserved" },
	{ "MEMORY", "FB Memory Usage", "Used", "memory.used" },
	{ "MEMORY", "FB Memory Usage", "Free", "memory.free" },
	{ "COMPUTE", NULL, "Compute Mode", "compute_mode" },
	{ "UTILIZATION", "Utilization", "GPU", "utilization.gpu" },
	{ "UTILIZATION", "Utilization", "Memory", "utilization.memory" },
	{ "ECC", "ECC Mode", "Current", "ecc.mode.current" },
	{ "ECC", "ECC Mode", "Pending", "ecc.mode.pending" },
	{ "ECC", "ECC Errors", "Corrected", "ecc.errors.corrected.volatile.total" },
	{ "ECC", "ECC Errors", "Uncorrected", "ecc.errors.uncorrected.volatile.total" },
	{ "TEMPERATURE", "Temperature", "GPU Current Temp", "temperature.gpu" },
	{ "POWER", "GPU Power Readings", "Power Draw", "power.draw" },
	{ "POWER", "GPU Power Readings", "Current Power Limit", "power.limit" },
	{ "POWER", "GPU Power Readings", "Default Power Limit", "power.default_limit" },
	{ "POWER", "GPU Power Readings", "Min Power Limit", "power.min_limit" },
	{ "POWER", "GPU Power Readings", "Max Power Limit", "power.max_limit" },
	{ "CLOCK", "Clocks", "SM", "clocks.current.sm" },
	{ "CLOCK", "Clocks", "Memory", "clocks.current.memory" },
	{ "CLOCK", "Max Clocks", "SM", "clocks.max.sm" },
	{ "CLOCK", "Max Clocks", "Memory", "clocks.max.memory" },
};

/* Whether a line belongs to what -d names. */
static bool wanted(const struct line *l, const char *types)
{
	if (!types)
		return true;
	if (!l->type)
		return false;
	size_t n = strlen(l->type);
	for (const char *p = types; (p = strcasestr(p, l->type)); p += n)
		if ((p == types || p[-1] == ',') && (p[n] == 0 || p[n] == ','))
			return true;
	return false;
}

static void report(nvmlDevice_t device, const char *types)
{
	char value[VALUE];
	const char *section = NULL;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		const struct line *l = &lines[i];
		if (!wanted(l, types))
			continue;
		if (l->section && (!section || strcmp(section, l->section) != 0))
			printf("    %s\n", l->section);
		section = l->section;
		printf("    %s%-*s : %s\n", section ? "    " : "", section ? 36 : 40, l->label, show(device, l->field, value));
	}
}

static void report_processes(nvmlDevice_t device)
{
	static nvmlProcessInfo_t list[MAX_APPS];
	unsigned count = MAX_APPS;
	char name[256];
	if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list) != NVML_SUCCESS)
		return;
	printf("    %-40s%s\n", "Processes", count ? "" : " : None");
	for (unsigned i = 0; i < count; i++) {
		if (nvmlSystemGetProcessName(list[i].pid, name, sizeof name) != NVML_SUCCESS)
			snprintf(name, sizeof name, "[Not Found]");
		printf("        %-36s : %u\n            %-32s : C\n            %-32s : %s\n            %-32s : %llu MiB\n",
		       "Process ID", list[i].pid, "Type", "Name", name, "Used GPU Memory", list[i].usedGpuMemory >> 20);
	}
}

int smi_report(const struct gpus *gpus, const struct options *o)
{
	char version[VALUE], when[VALUE];
	int cuda = 0;
	time_t now = time(NULL);
	struct tm local;
	nvmlReturn_t ret = nvmlSystemGetDriverVersion(version, sizeof version);
	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetCudaDriverVersion_v2(&cuda);
	if (ret != NVML_SUCCESS)
		return smi_fail(ret);
	strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", localtime_r(&now, &local));
	printf("\n==============NVSMI LOG==============\n\n%-44s : %s\n%-44s : %s\n", "Timestamp", when, "Driver Version",
	       version);
	printf("%-44s : %d.%d\n\n%-44s : %u\n", "CUDA Version", cuda / 1000, cuda % 1000 / 10, "Attached GPUs",
		gpus->count);
	for (unsigned i = 0; i < gpus->count; i++) {
		char bus[VALUE];
		printf("GPU %s\n", show(gpus->device[i], "pci.bus_id", bus));
		report(gpus->device[i], o->types);
		if (!o->types)
			report_processes(gpus->device[i]);
		putchar('\n');
	}
	return 0;
}

int smi_version(void)
{
	char driver[VALUE], nvml[VALUE];
	int cuda = 0;
	nvmlReturn_t ret = nvmlSystemGetDriverVersion(driver, sizeof driver);
	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetNVMLVersion(nvml, sizeof nvml);
	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetCudaDriverVersion_v2(&cuda);
	if (ret != NVML_SUCCESS)
		return smi_fail(ret);
	/* NVML's version is CUDA's and then the driver's, of which NVIDIA's program shows two numbers. */
	const char *number = strchr(nvml, '.') ? strchr(nvml, '.') + 1 : nvml;
	size_t n = strcspn(number, ".");
	n += number[n] ? 1 + strcspn(number + n + 1, ".") : 0;
	printf("%-20s: %s\n%-20s: %.*s\n%-20s: %s\n%-20s: %d.%d\n", "NVIDIA-SMI version", driver, "NVML version", (int)n,
	       number, "DRIVER version", driver, "CUDA Version", cuda / 1000, cuda % 1000 / 10);
	return 0;
}

static void rule(char fill)
{
	putchar('+');
	for (int i = 0; i < 89; i++)
		putchar(fill);
	puts("+");
}

int smi_table(const struct gpus *gpus)
{
	static nvmlProcessInfo_t list[MAX_APPS];
	char driver[VALUE], a[VALUE], b[VALUE], c[VALUE], d[VALUE], text[2 * VALUE], name[VALUE];
	int cuda = 0, processes = 0;
	nvmlReturn_t ret = nvmlSystemGetDriverVersion(driver, sizeof driver);
	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetCudaDriverVersion_v2(&cuda);
	if (ret != NVML_SUCCESS)
		return smi_fail(ret);
	rule('-');
	printf("| NVIDIA-SMI %-20s Driver Version: %-19s CUDA Version: %2d.%-2d |\n", driver, driver, cuda / 1000,
	       cuda % 1000 / 10);
	rule('-');
	for (unsigned i = 0; i < gpus->count; i++) {
		nvmlDevice_t g = gpus->device[i];
		printf("| %3u  %-36.36s %-22s MIG %-18.18s |\n", gpus->index[i], show(g, "name", a), show(g, "pci.bus_id", b),
		       show(g, "mig.mode.current", c));
		snprintf(text, sizeof text, "%s / %s", show(g, "memory.used", a), show(g, "memory.total", b));
		printf("|      %3.3sC  %10.10s  %-32.32s GPU %-8.8s %-18.18s |\n", show(g, "temperature.gpu", c),
		       show(g, "power.draw", d), text, show(g, "utilization.gpu", a), show(g, "compute_mode", b));
	}
	rule('-');
	printf("| %-87s |\n", "Processes:");
	for (unsigned i = 0; i < gpus->count; i++) {
		unsigned count = MAX_APPS;
		if (nvmlDeviceGetComputeRunningProcesses_v3(gpus->device[i], &count, list) != NVML_SUCCESS)
			continue;
		for (unsigned p = 0; p < count; p++, processes++) {
			if (nvmlSystemGetProcessName(list[p].pid, name, sizeof name) != NVML_SUCCESS)
				snprintf(name, sizeof name, "[Not Found]");
			printf("| %3u  %10u  C  %-52.52s %10llu MiB |\n", gpus->index[i], list[p].pid, name,
			       list[p].usedGpuMemory >> 20);
		}
	}
	if (!processes)
		printf("| %-87s |\n", " No running processes found");
	rule('-');
	return 0;
}

int smi_compute_mode(const struct gpus *gpus, const char *word)
{
	static const char *const words[] = { "DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS" };
	char bus[VALUE], before[VALUE];
	int mode = -1;
	for (int i = 0; i < 4; i++)
		if (strcasecmp(word, words[i]) == 0 || (word[0] == '0' + i && word[1] == 0))
			mode = i;
	if (mode < 0 || mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) {
		printf("\"%s\" is not a valid compute mode.\n", word);
		return EXIT_USAGE;
	}
	for (unsigned i = 0; i < gpus->count; i++) {
		show(gpus->device[i], "pci.bus_id", bus);
		show(gpus->device[i], "compute_mode", before);
		nvmlReturn_t ret = nvmlDeviceSetComputeMode(gpus->device[i], (nvmlComputeMode_t)mode);
		if (ret != NVML_SUCCESS) {
			printf("Unable to set the compute mode for GPU %s: %s\n", bus, nvmlErrorString(ret));
			return (int)ret;
		}
		if (strcasecmp(before, words[mode]) == 0)
			printf("Compute mode is already set to %s for GPU %s.\n", words[mode], bus);
		else
			printf("Set compute mode to %s for GPU %s.\n", words[mode], bus);
	}
	puts("All done.");
	return 0;
}
