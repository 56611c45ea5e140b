/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The values of --query-gpu.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB (1ULL << 20)

typedef nvmlReturn_t reader(nvmlDevice_t device, unsigned what, char *out);

static nvmlReturn_t text(char *out, const char *value)
{
	snprintf(out, VALUE, "%s", value);
	return NVML_SUCCESS;
}

static nvmlReturn_t number(char *out, unsigned long long value)
{
	snprintf(out, VALUE, "%llu", value);
	return NVML_SUCCESS;
}

/* Hands an error on, or what the last call wrote. */
#define ASK(call)                               \
	do {                                    \
		nvmlReturn_t ret_ = (call);     \
		if (ret_ != NVML_SUCCESS)       \
			return ret_;            \
	} while (0)

enum { NAME, UUID, SERIAL, VBIOS, DRIVER, TIMESTAMP };

static nvmlReturn_t identity(nvmlDevice_t device, unsigned what, char *out)
{
	time_t now = time(NULL);
	struct tm local;
	switch (what) {
	case NAME:
		return nvmlDeviceGetName(device, out, VALUE);
	case UUID:
		return nvmlDeviceGetUUID(device, out, VALUE);
	case SERIAL:
		return nvmlDeviceGetSerial(device, out, VALUE);
	case VBIOS:
		return nvmlDeviceGetVbiosVersion(device, out, VALUE);
	case DRIVER:
		return nvmlSystemGetDriverVersion(out, VALUE);
	default:
		strftime(out, VALUE, "%Y/%m/%d %H:%M:%S.000", localtime_r(&now, &local));
		return NVML_SUCCESS;
	}
}

enum { INDEX, MINOR, COUNT, COMPUTE_CAP };

static nvmlReturn_t counted(nvmlDevice_t device, unsigned what, char *out)
{
	unsigned n = 0;
	int major, minor;
	switch (what) {
	case INDEX:
		ASK(nvmlDeviceGetIndex(device, &n));
		return number(out, n);
	case MINOR:
		ASK(nvmlDeviceGetMinorNumber(device, &n));
		return number(out, n);
	case COUNT:
		ASK(nvmlDeviceGetCount_v2(&n));
		return number(out, n);
	default:
		ASK(nvmlDeviceGetCudaComputeCapability(device, &major, &minor));
		snprintf(out, VALUE, "%d.%d", major, minor);
		return NVML_SUCCESS;
	}
}

enum { BUS_ID, PCI_DOMAIN, PCI_BUS, PCI_DEVICE, PCI_DEVICE_ID, PCI_SUBSYSTEM };

static nvmlReturn_t pci(nvmlDevice_t device, unsigned what, char *out)
{
	nvmlPciInfo_t info;
	ASK(nvmlDeviceGetPciInfo_v3(device, &info));
	switch (what) {
	case BUS_ID:
		return text(out, info.busId);
	case PCI_DOMAIN:
		return snprintf(out, VALUE, "0x%04X", info.domain), NVML_SUCCESS;
	case PCI_BUS:
		return snprintf(out, VALUE, "0x%02X", info.bus), NVML_SUCCESS;
	case PCI_DEVICE:
		return snprintf(out, VALUE, "0x%02X", info.device), NVML_SUCCESS;
	case PCI_DEVICE_ID:
		return snprintf(out, VALUE, "0x%08X", info.pciDeviceId), NVML_SUCCESS;
	default:
		return snprintf(out, VALUE, "0x%08X", info.pciSubSystemId), NVML_SUCCESS;
	}
}

enum { TOTAL, RESERVED, USED, FREE };

static nvmlReturn_t memory(nvmlDevice_t device, unsigned what, char *out)
{
	nvmlMemory_v2_t m = { .version = nvmlMemory_v2 };
	ASK(nvmlDeviceGetMemoryInfo_v2(device, &m));
	unsigned long long of[] = { m.total, m.reserved, m.used, m.free };
	return number(out, of[what] / MIB);
}

static nvmlReturn_t utilization(nvmlDevice_t device, unsigned memory_too, char *out)
{
	nvmlUtilization_t u;
	ASK(nvmlDeviceGetUtilizationRates(device, &u));
	return number(out, memory_too ? u.memory : u.gpu);
}

enum { DRAW, LIMIT, ENFORCED, DEFAULT_LIMIT, LEAST, MOST };

static nvmlReturn_t power(nvmlDevice_t device, unsigned what, char *out)
{
	unsigned mw = 0, least = 0, most = 0;
	switch (what) {
	case DRAW:
		ASK(nvmlDeviceGetPowerUsage(device, &mw));
		break;
	case LIMIT:
		ASK(nvmlDeviceGetPowerManagementLimit(device, &mw));
		break;
	case ENFORCED:
		ASK(nvmlDeviceGetEnforcedPowerLimit(device, &mw));
		break;
	case DEFAULT_LIMIT:
		ASK(nvmlDeviceGetPowerManagementDefaultLimit(device, &mw));
		break;
	default:
		ASK(nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most));
		mw = what == LEAST ? least : most;
	}
	snprintf(out, VALUE, "%.2f", mw / 1000.0);
	return NVML_SUCCESS;
}

static nvmlReturn_t clock_now(nvmlDevice_t device, unsigned type, char *out)
{
	unsigned mhz;
	ASK(nvmlDeviceGetClockInfo(device, (nvmlClockType_t)type, &mhz));
	return number(out, mhz);
}

static nvmlReturn_t clock_most(nvmlDevice_t device, unsigned type, char *out)
{
	unsigned mhz;
	ASK(nvmlDeviceGetMaxClockInfo(device, (nvmlClockType_t)type, &mhz));
	return number(out, mhz);
}

static nvmlReturn_t clock_application(nvmlDevice_t device, unsigned type, char *out)
{
	unsigned mhz;
	ASK(nvmlDeviceGetApplicationsClock(device, (nvmlClockType_t)type, &mhz));
	return number(out, mhz);
}

static nvmlReturn_t temperature(nvmlDevice_t device, unsigned sensor, char *out)
{
	unsigned celsius;
	ASK(nvmlDeviceGetTemperature(device, (nvmlTemperatureSensors_t)sensor, &celsius));
	return number(out, celsius);
}

static nvmlReturn_t on_off(char *out, unsigned state)
{
	return text(out, state ? "Enabled" : "Disabled");
}

enum { MIG_CURRENT, MIG_PENDING, ECC_CURRENT, ECC_PENDING, PERSISTENCE, ACCOUNTING, POWER_MANAGEMENT, DISPLAY };

static nvmlReturn_t mode(nvmlDevice_t device, unsigned what, char *out)
{
	unsigned current, pending;
	nvmlEnableState_t now = 0, next = 0;
	switch (what) {
	case MIG_CURRENT:
	case MIG_PENDING:
		ASK(nvmlDeviceGetMigMode(device, &current, &pending));
		return on_off(out, what == MIG_CURRENT ? current : pending);
	case ECC_CURRENT:
	case ECC_PENDING:
		ASK(nvmlDeviceGetEccMode(device, &now, &next));
		return on_off(out, what == ECC_CURRENT ? now : next);
	case PERSISTENCE:
		ASK(nvmlDeviceGetPersistenceMode(device, &now));
		break;
	case ACCOUNTING:
		ASK(nvmlDeviceGetAccountingMode(device, &now));
		break;
	case POWER_MANAGEMENT:
		ASK(nvmlDeviceGetPowerManagementMode(device, &now));
		break;
	default:
		ASK(nvmlDeviceGetDisplayMode(device, &now));
	}
	return on_off(out, now);
}

static nvmlReturn_t compute_mode(nvmlDevice_t device, unsigned unused, char *out)
{
	static const char *const words[] = { "Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process" };
	nvmlComputeMode_t now;
	(void)unused;
	ASK(nvmlDeviceGetComputeMode(device, &now));
	return now < NVML_COMPUTEMODE_COUNT ? text(out, words[now]) : NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t ecc(nvmlDevice_t device, unsigned what, char *out)
{
	unsigned long long errors;
	nvmlMemoryErrorType_t type = what & 1 ? NVML_MEMORY_ERROR_TYPE_UNCORRECTED : NVML_MEMORY_ERROR_TYPE_CORRECTED;
	ASK(nvmlDeviceGetTotalEccErrors(device, type, what & 2 ? NVML_AGGREGATE_ECC : NVML_VOLATILE_ECC, &errors));
	return number(out, errors);
}

static nvmlReturn_t performance(nvmlDevice_t device, unsigned unused, char *out)
{
	nvmlPstates_t state;
	(void)unused;
	ASK(nvmlDeviceGetPerformanceState(device, &state));
	snprintf(out, VALUE, "P%d", state);
	return NVML_SUCCESS;
}

static nvmlReturn_t fan(nvmlDevice_t device, unsigned unused, char *out)
{
	unsigned percent;
	(void)unused;
	ASK(nvmlDeviceGetFanSpeed(device, &percent));
	return number(out, percent);
}

static const struct field {
	const char *name, *also, *unit;
	reader *read;
	unsigned what;
} fields[] = {
	{ "timestamp", NULL, NULL, identity, TIMESTAMP },
	{ "driver_version", NULL, NULL, identity, DRIVER },
	{ "count", NULL, NULL, counted, COUNT },
	{ "name", "gpu_name", NULL, identity, NAME },
	{ "serial", "gpu_serial", NULL, identity, SERIAL },
	{ "uuid", "gpu_uuid", NULL, identity, UUID },
	{ "index", NULL, NULL, counted, INDEX },
	{ "minor_number", NULL, NULL, counted, MINOR },
	{ "vbios_version", NULL, NULL, identity, VBIOS },
	{ "pci.bus_id", "gpu_bus_id", NULL, pci, BUS_ID },
	{ "pci.domain", NULL, NULL, pci, PCI_DOMAIN },
	{ "pci.bus", NULL, NULL, pci, PCI_BUS },
	{ "pci.device", NULL, NULL, pci, PCI_DEVICE },
	{ "pci.device_id", NULL, NULL, pci, PCI_DEVICE_ID },
	{ "pci.sub_device_id", NULL, NULL, pci, PCI_SUBSYSTEM },
	{ "memory.total", NULL, "MiB", memory, TOTAL },
	{ "memory.reserved", NULL, "MiB", memory, RESERVED },
	{ "memory.used", NULL, "MiB", memory, USED },
	{ "memory.free", NULL, "MiB", memory, FREE },
	{ "utilization.gpu", NULL, "%", utilization, 0 },
	{ "utilization.memory", NULL, "%", utilization, 1 },
	{ "temperature.gpu", NULL, NULL, temperature, NVML_TEMPERATURE_GPU },
	{ "power.management", NULL, NULL, mode, POWER_MANAGEMENT },
	{ "power.draw", NULL, "W", power, DRAW },
	{ "power.limit", NULL, "W", power, LIMIT },
	{ "enforced.power.limit", NULL, "W", power, ENFORCED },
	{ "power.default_limit", NULL, "W", power, DEFAULT_LIMIT },
	{ "power.min_limit", NULL, "W", power, LEAST },
	{ "power.max_limit", NULL, "W", power, MOST },
	{ "clocks.current.graphics", "clocks.gr", "MHz", clock_now, NVML_CLOCK_GRAPHICS },
	{ "clocks.current.sm", "clocks.sm", "MHz", clock_now, NVML_CLOCK_SM },
	{ "clocks.current.memory", "clocks.mem", "MHz", clock_now, NVML_CLOCK_MEM },
	{ "clocks.max.graphics", "clocks.max.gr", "MHz", clock_most, NVML_CLOCK_GRAPHICS },
	{ "clocks.max.sm", NULL, "MHz", clock_most, NVML_CLOCK_SM },
	{ "clocks.max.memory", "clocks.max.mem", "MHz", clock_most, NVML_CLOCK_MEM },
	{ "clocks.applications.graphics", "clocks.applications.gr", "MHz", clock_application, NVML_CLOCK_GRAPHICS },
	{ "clocks.applications.memory", "clocks.applications.mem", "MHz", clock_application, NVML_CLOCK_MEM },
	{ "compute_mode", NULL, NULL, compute_mode, 0 },
	{ "compute_cap", NULL, NULL, counted, COMPUTE_CAP },
	{ "mig.mode.current", NULL, NULL, mode, MIG_CURRENT },
	{ "mig.mode.pending", NULL, NULL, mode, MIG_PENDING },
	{ "ecc.mode.current", NULL, NULL, mode, ECC_CURRENT },
	{ "ecc.mode.pending", NULL, NULL, mode, ECC_PENDING },
	{ "ecc.errors.corrected.volatile.total", NULL, NULL, ecc, 0 },
	{ "ecc.errors.uncorrected.volatile.total", NULL, NULL, ecc, 1 },
	{ "ecc.errors.corrected.aggregate.total", NULL, NULL, ecc, 2 },
	{ "ecc.errors.uncorrected.aggregate.total", NULL, NULL, ecc, 3 },
	{ "persistence_mode", NULL, NULL, mode, PERSISTENCE },
	{ "accounting.mode", NULL, NULL, mode, ACCOUNTING },
	{ "display_mode", NULL, NULL, mode, DISPLAY },
	{ "pstate", NULL, NULL, performance, 0 },
	{ "fan.speed", NULL, "%", fan, 0 },
};

bool smi_value(nvmlDevice_t device, const char *name, char value[VALUE], const char **unit)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const struct field *f = &fields[i];
		if (strcmp(name, f->name) != 0 && (!f->also || strcmp(name, f->also) != 0))
			continue;
		*unit = f->unit;
		nvmlReturn_t ret = f->read(device, f->what, value);
		if (ret != NVML_SUCCESS)
			*unit = NULL;
		if (ret == NVML_ERROR_NOT_SUPPORTED)
			text(value, "[N/A]");
		else if (ret == NVML_ERROR_GPU_IS_LOST)
			text(value, "[GPU is lost]");
		else if (ret != NVML_SUCCESS)
			text(value, "[Unknown Error]");
		return true;
	}
	return false;
}
