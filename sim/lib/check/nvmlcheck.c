/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * nvmlcheck COMMAND...: calls libnvidia-ml.so.1 and prints one line per command. A command's arguments are
 * joined to it by commas, as in "memory,0". The first words of a line are the function's code.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct limits {
	const char *dir;
	unsigned long long soft, hard, used;
};
typedef nvmlReturn_t limits_call(nvmlDevice_t, struct limits *);
/* The header warns of who names this one. */
typedef nvmlReturn_t temperature_call(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned *);

static nvmlEventSet_t events;

static nvmlDevice_t gpu(const char *index)
{
	nvmlDevice_t device = { 0 };
	nvmlReturn_t ret = CALL(nvmlDeviceGetHandleByIndex_v2)((unsigned)atoi(index), &device);
	if (ret)
		printf("%d handle\n", ret);
	return device;
}

/* What a thread is stuck in while another acts. */
static nvmlReturn_t stuck;

static void *wait_long(void *unused)
{
	nvmlEventData_t e;
	stuck = CALL(nvmlEventSetWait_v2)(events, &e, 60000);
	return unused;
}

static void *ask_recovery(void *device)
{
	nvmlFieldValue_t f = { .fieldId = NVML_FI_DEV_GET_GPU_RECOVERY_ACTION };
	CALL(nvmlDeviceGetFieldValues)(*(nvmlDevice_t *)device, 1, &f);
	stuck = f.nvmlReturn;
	return NULL;
}

static void command(char *text)
{
	char *arg[8] = { 0 };
	int n = 0;
	for (char *p = strtok(text, ","); p && n < 8; p = strtok(NULL, ","))
		arg[n++] = p;
	nvmlReturn_t ret;
#define IS(word, args) (strcmp(arg[0], word) == 0 && n == (args) + 1)
	if (IS("init", 0)) {
		printf("%d\n", CALL(nvmlInit_v2)());
	} else if (IS("shutdown", 0)) {
		printf("%d\n", CALL(nvmlShutdown)());
	} else if (IS("sleep", 1)) {
		usleep((unsigned)atoi(arg[1]) * 1000);
		puts("0");
	} else if (IS("has", 1)) {
		puts(dlsym(library, arg[1]) ? "yes" : "no");
	} else if (IS("stub", 1)) {
		printf("%d\n", ((nvmlReturn_t (*)(void *))symbol(arg[1]))(NULL));
	} else if (IS("system", 0)) {
		char driver[80] = "", nvml[80] = "";
		int cuda = 0;
		CALL(nvmlSystemGetDriverVersion)(driver, sizeof driver);
		CALL(nvmlSystemGetNVMLVersion)(nvml, sizeof nvml);
		ret = CALL(nvmlSystemGetCudaDriverVersion_v2)(&cuda);
		printf("%d %s %s %d\n", ret, driver, nvml, cuda);
	} else if (IS("short", 0)) {
		char driver[3];
		printf("%d\n", CALL(nvmlSystemGetDriverVersion)(driver, sizeof driver));
	} else if (IS("count", 0)) {
		unsigned count = 0;
		ret = CALL(nvmlDeviceGetCount_v2)(&count);
		printf("%d %u\n", ret, count);
	} else if (IS("excluded", 0)) {
		typedef nvmlReturn_t (*count_call)(unsigned *);
		typedef nvmlReturn_t (*info_call)(unsigned, nvmlExcludedDeviceInfo_t *);
		typedef nvmlReturn_t (*table_call)(const void **, const void *);
		nvmlExcludedDeviceInfo_t info;
		const void *table = &info;
		unsigned now = 9, before = 9;
		ret = CALL(nvmlGetExcludedDeviceCount)(&now);
		ret |= ((count_call)symbol("nvmlGetBlacklistDeviceCount"))(&before);
		printf("%d %u %u", ret, now, before);
		printf(" %d", ((count_call)symbol("nvmlGetBlacklistDeviceCount"))(NULL));
		printf(" %d", CALL(nvmlGetExcludedDeviceInfoByIndex)(0, &info));
		printf(" %d", ((info_call)symbol("nvmlGetBlacklistDeviceInfoByIndex"))(0, &info));
		ret = ((table_call)symbol("nvmlInternalGetExportTable"))(&table, "0123456789abcdef");
		printf(" %d %d\n", ret, table == NULL);
	} else if (IS("identity", 1)) {
		nvmlDevice_t d = gpu(arg[1]);
		char uuid[96] = "", name[96] = "", serial[32] = "";
		unsigned minor = 0, index = 0;
		nvmlPciInfo_t pci = { 0 };
		if (!d.handle)
			return;
		CALL(nvmlDeviceGetName)(d, name, sizeof name);
		CALL(nvmlDeviceGetSerial)(d, serial, sizeof serial);
		CALL(nvmlDeviceGetMinorNumber)(d, &minor);
		CALL(nvmlDeviceGetIndex)(d, &index);
		CALL(nvmlDeviceGetPciInfo_v3)(d, &pci);
		ret = CALL(nvmlDeviceGetUUID)(d, uuid, sizeof uuid);
		printf("%d %s %s minor=%u index=%u %s %s\n", ret, uuid, serial, minor, index, pci.busId, name);
	} else if (IS("uuid", 1) || IS("pci", 1)) {
		nvmlDevice_t d = { 0 };
		unsigned minor = 0;
		ret = arg[0][0] == 'u' ? CALL(nvmlDeviceGetHandleByUUID)(arg[1], &d)
				       : CALL(nvmlDeviceGetHandleByPciBusId_v2)(arg[1], &d);
		if (!ret)
			CALL(nvmlDeviceGetMinorNumber)(d, &minor);
		printf("%d %u\n", ret, minor);
	} else if (IS("memory", 1)) {
		nvmlMemory_v2_t m = { .version = nvmlMemory_v2 };
		nvmlMemory_t v1 = { 0 };
		nvmlDevice_t d = gpu(arg[1]);
		if (!d.handle)
			return;
		CALL(nvmlDeviceGetMemoryInfo)(d, &v1);
		ret = CALL(nvmlDeviceGetMemoryInfo_v2)(d, &m);
		printf("%d total=%llu reserved=%llu free=%llu used=%llu v1used=%llu\n", ret, m.total, m.reserved,
		       m.free, m.used, v1.used);
	} else if (IS("bar1", 1)) {
		nvmlBAR1Memory_t m = { 0 };
		ret = CALL(nvmlDeviceGetBAR1MemoryInfo)(gpu(arg[1]), &m);
		printf("%d %llu\n", ret, m.bar1Total);
	} else if (IS("processes", 2)) {
		unsigned count = (unsigned)atoi(arg[2]);
		nvmlProcessInfo_t *list = calloc(count + 1, sizeof *list);
		nvmlDevice_t d = gpu(arg[1]);
		if (!d.handle)
			return;
		ret = CALL(nvmlDeviceGetComputeRunningProcesses_v3)(d, &count, count ? list : NULL);
		printf("%d %u", ret, count);
		for (unsigned i = 0; !ret && i < count; i++)
			printf(" %u:%lld", list[i].pid, (long long)list[i].usedGpuMemory);
		puts("");
		free(list);
	} else if (IS("lists", 1)) {
		nvmlProcessInfo_t list[8];
		nvmlDevice_t d = gpu(arg[1]);
		unsigned found[3] = { 8, 8, 8 };
		ret = CALL(nvmlDeviceGetComputeRunningProcesses_v3)(d, &found[0], list);
		ret |= CALL(nvmlDeviceGetGraphicsRunningProcesses_v3)(d, &found[1], list);
		ret |= CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3)(d, &found[2], list);
		printf("%d compute=%u graphics=%u mps=%u\n", ret, found[0], found[1], found[2]);
	} else if (IS("use", 1)) {
		nvmlProcessUtilizationSample_t s[8];
		nvmlProcessUtilizationInfo_v1_t v1[8];
		nvmlProcessesUtilizationInfo_t info = { .version = nvmlProcessesUtilizationInfo_v1,
							.processSamplesCount = 8, .procUtilArray = v1 };
		nvmlDevice_t d = gpu(arg[1]);
		unsigned need = 0, got = 8;
		int asked = CALL(nvmlDeviceGetProcessUtilization)(d, NULL, &need, 0);
		ret = CALL(nvmlDeviceGetProcessUtilization)(d, s, &got, 0);
		nvmlReturn_t ret1 = CALL(nvmlDeviceGetProcessesUtilizationInfo)(d, &info);
		printf("%d %u %d %u %d %u", asked, need, ret, got, ret1, info.processSamplesCount);
		for (unsigned i = 0; !ret && !ret1 && i < got; i++)
			printf(" %u:%s", s[i].pid, s[i].smUtil > 0 && s[i].pid == v1[i].pid ? "busy" : "idle");
		puts("");
	} else if (IS("mode", 1) || IS("mode", 2)) {
		nvmlDevice_t d = gpu(arg[1]);
		nvmlComputeMode_t mode = NVML_COMPUTEMODE_COUNT;
		ret = arg[2] ? CALL(nvmlDeviceSetComputeMode)(d, (nvmlComputeMode_t)atoi(arg[2])) : NVML_SUCCESS;
		ret = ret ? ret : CALL(nvmlDeviceGetComputeMode)(d, &mode);
		printf("%d %d\n", ret, mode);
	} else if (IS("telemetry", 1)) {
		nvmlDevice_t d = gpu(arg[1]);
		nvmlEnableState_t ecc, pending;
		unsigned power = 0, most = 0, sm = 0, memory = 0, degrees = 0;
		unsigned long long corrected = 0, uncorrected = 0, cache = 9;
		ret = CALL(nvmlDeviceGetPowerUsage)(d, &power);
		ret |= CALL(nvmlDeviceGetEnforcedPowerLimit)(d, &most);
		ret |= CALL(nvmlDeviceGetClockInfo)(d, NVML_CLOCK_SM, &sm);
		ret |= CALL(nvmlDeviceGetMaxClockInfo)(d, NVML_CLOCK_MEM, &memory);
		ret |= ((temperature_call *)symbol("nvmlDeviceGetTemperature"))(d, NVML_TEMPERATURE_GPU, &degrees);
		ret |= CALL(nvmlDeviceGetEccMode)(d, &ecc, &pending);
		ret |= CALL(nvmlDeviceGetTotalEccErrors)(d, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &corrected);
		ret |= CALL(nvmlDeviceGetMemoryErrorCounter)(d, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC,
							     NVML_MEMORY_LOCATION_DEVICE_MEMORY, &uncorrected);
		ret |= CALL(nvmlDeviceGetMemoryErrorCounter)(d, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC,
							     NVML_MEMORY_LOCATION_L2_CACHE, &cache);
		printf("%d power=%u/%u sm=%u memory=%u degrees=%u ecc=%d,%llu,%llu,%llu video=%d\n", ret, power, most, sm,
		       memory, degrees, ecc, corrected, uncorrected, cache,
		       CALL(nvmlDeviceGetClockInfo)(d, NVML_CLOCK_VIDEO, &sm));
	} else if (IS("nearest", 2)) {
		nvmlDevice_t d = gpu(arg[1]);
		unsigned count = 0;
		ret = CALL(nvmlDeviceGetTopologyNearestGpus)(d, (nvmlGpuTopologyLevel_t)atoi(arg[2]), &count, NULL);
		printf("%d %u\n", ret, count);
	} else if (IS("set", 4) || IS("get", 2)) {
		struct limits l = { .dir = arg[2] };
		nvmlDevice_t d = gpu(arg[1]);
		if (arg[0][0] == 's') {
			l.soft = strtoull(arg[3], NULL, 0);
			l.hard = strtoull(arg[4], NULL, 0);
			ret = ((limits_call *)symbol("nvmlDeviceSetMemoryLimits_v1"))(d, &l);
		} else {
			ret = ((limits_call *)symbol("nvmlDeviceGetMemoryLimits_v1"))(d, &l);
		}
		printf("%d soft=%llu hard=%llu used=%llu\n", ret, l.soft, l.hard, l.used);
	} else if (IS("recovery", 1)) {
		nvmlFieldValue_t f[2] = { { .fieldId = NVML_FI_DEV_GET_GPU_RECOVERY_ACTION }, { .fieldId = 1 } };
		ret = CALL(nvmlDeviceGetFieldValues)(gpu(arg[1]), 2, f);
		printf("%d %d %u %d\n", ret, f[0].nvmlReturn, f[0].value.uiVal, f[1].nvmlReturn);
	} else if (IS("virtual", 1)) {
		nvmlGpuVirtualizationMode_t mode = NVML_GPU_VIRTUALIZATION_MODE_VGPU;
		ret = CALL(nvmlDeviceGetVirtualizationMode)(gpu(arg[1]), &mode);
		printf("%d %d\n", ret, (int)mode);
	} else if (IS("watch", 1)) {
		if (!events.handle)
			CALL(nvmlEventSetCreate)(&events);
		printf("%d\n", CALL(nvmlDeviceRegisterEvents)(gpu(arg[1]), nvmlEventTypeXidCriticalError, events));
	} else if (IS("wait", 1)) {
		nvmlEventData_t e = { 0 };
		unsigned minor = 0;
		ret = CALL(nvmlEventSetWait_v2)(events, &e, (unsigned)atoi(arg[1]));
		if (!ret)
			CALL(nvmlDeviceGetMinorNumber)(e.device, &minor);
		printf("%d minor=%u type=%llu data=%llu gi=%u\n", ret, minor, e.eventType, e.eventData, e.gpuInstanceId);
	} else if (IS("free-while-waiting", 0)) {
		pthread_t t;
		EQ(pthread_create(&t, NULL, wait_long, NULL), 0);
		usleep(100000);
		ret = CALL(nvmlEventSetFree)(events);
		EQ(pthread_join(t, NULL), 0);
		printf("%d %d %d\n", ret, stuck, CALL(nvmlEventSetFree)(events));
		events.handle = NULL;
	} else if (IS("shutdown-while-hung", 1)) {
		pthread_t t;
		nvmlDevice_t d = gpu(arg[1]);
		EQ(pthread_create(&t, NULL, ask_recovery, &d), 0);
		usleep(100000);
		ret = CALL(nvmlShutdown)();
		EQ(pthread_join(t, NULL), 0);
		printf("%d %d\n", ret, stuck);
	} else if (IS("fork", 1)) {
		unsigned count = 0;
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			nvmlUtilization_t u = { 0 };
			nvmlDevice_t d = gpu(arg[1]);
			ret = d.handle ? CALL(nvmlDeviceGetUtilizationRates)(d, &u) : NVML_ERROR_UNKNOWN;
			printf("child %d %u, ", ret, u.gpu);
			fflush(stdout);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		ret = CALL(nvmlDeviceGetCount_v2)(&count);
		printf("parent %d %u\n", ret, count);
	} else if (IS("gi-create", 2) || IS("gi-create", 3)) {
		nvmlGpuInstance_t gi = { 0 };
		nvmlGpuInstanceInfo_t info = { 0 };
		nvmlGpuInstancePlacement_t place = { 0 };
		nvmlDevice_t d = gpu(arg[1]);
		unsigned profile = (unsigned)atoi(arg[2]);
		if (arg[3]) {
			nvmlGpuInstancePlacement_t all[32] = { { 0 } };
			unsigned count = 32;
			CALL(nvmlDeviceGetGpuInstancePossiblePlacements_v2)(d, profile, all, &count);
			place = (nvmlGpuInstancePlacement_t){ .start = (unsigned)atoi(arg[3]), .size = all[0].size };
			ret = CALL(nvmlDeviceCreateGpuInstanceWithPlacement)(d, profile, &place, &gi);
		} else {
			ret = CALL(nvmlDeviceCreateGpuInstance)(d, profile, &gi);
		}
		if (ret == NVML_SUCCESS)
			ret = CALL(nvmlGpuInstanceGetInfo)(gi, &info);
		printf("%d gi=%u profile=%u at %u\n", ret, info.id, info.profileId, info.placement.start);
	} else if (IS("gi-destroy", 2)) {
		nvmlGpuInstance_t gi = { 0 };
		ret = CALL(nvmlDeviceGetGpuInstanceById)(gpu(arg[1]), (unsigned)atoi(arg[2]), &gi);
		printf("%d\n", ret ? ret : CALL(nvmlGpuInstanceDestroy)(gi));
	} else if (IS("ci-create", 3)) {
		nvmlGpuInstance_t gi = { 0 };
		nvmlComputeInstance_t ci = { 0 };
		ret = CALL(nvmlDeviceGetGpuInstanceById)(gpu(arg[1]), (unsigned)atoi(arg[2]), &gi);
		ret = ret ? ret : CALL(nvmlGpuInstanceCreateComputeInstance)(gi, (unsigned)atoi(arg[3]), &ci);
		printf("%d\n", ret);
	} else if (IS("ci-destroy", 2) || IS("ci-destroy", 3)) {
		nvmlGpuInstance_t gi = { 0 };
		nvmlComputeInstance_t ci = { 0 };
		ret = CALL(nvmlDeviceGetGpuInstanceById)(gpu(arg[1]), (unsigned)atoi(arg[2]), &gi);
		ret = ret ? ret : CALL(nvmlGpuInstanceGetComputeInstanceById)(gi, arg[3] ? (unsigned)atoi(arg[3]) : 0, &ci);
		printf("%d\n", ret ? ret : CALL(nvmlComputeInstanceDestroy)(ci));
	} else if (IS("mig-mode", 1) || IS("mig-mode", 2)) {
		nvmlDevice_t d = gpu(arg[1]);
		nvmlReturn_t activation = NVML_SUCCESS;
		unsigned current = 9, pending = 9;
		ret = arg[2] ? CALL(nvmlDeviceSetMigMode)(d, (unsigned)atoi(arg[2]), &activation) : NVML_SUCCESS;
		if (ret == NVML_SUCCESS)
			ret = CALL(nvmlDeviceGetMigMode)(d, &current, &pending);
		printf("%d activation=%d %u %u\n", ret, activation, current, pending);
	} else if (IS("mig", 1)) {
		nvmlDevice_t d = gpu(arg[1]), m = { 0 };
		unsigned current = 9, pending = 9, is = 9, gi = 99;
		char uuid[96] = "", name[96] = "";
		struct limits l = { .dir = "/" };
		ret = CALL(nvmlDeviceGetMigMode)(d, &current, &pending);
		printf("%d %u %u", ret, current, pending);
		for (unsigned i = 0; !CALL(nvmlDeviceGetMigDeviceHandleByIndex)(d, i, &m); i++) {
			CALL(nvmlDeviceIsMigDeviceHandle)(m, &is);
			CALL(nvmlDeviceGetGpuInstanceId)(m, &gi);
			CALL(nvmlDeviceGetUUID)(m, uuid, sizeof uuid);
			CALL(nvmlDeviceGetName)(m, name, sizeof name);
			printf(" [%u gi=%u %s %s set=%d]", is, gi, uuid, name,
			       ((limits_call *)symbol("nvmlDeviceSetMemoryLimits_v1"))(m, &l));
		}
		puts("");
	} else {
		fprintf(stderr, "nvmlcheck: no command %s with %d arguments\n", arg[0], n - 1);
		exit(2);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	load("libnvidia-ml.so.1");
	for (int i = 1; i < argc; i++)
		command(argv[i]);
	return 0;
}
