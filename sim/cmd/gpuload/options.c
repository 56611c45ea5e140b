/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The command line.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "gpuload.h"

static const char help[] =
	"usage: gpuload [flags]\n"
	"\n"
	"Takes GPU memory through the CUDA driver (libcuda.so.1), prints one line per process when it has what it\n"
	"can get, holds it, and gives it back. With --launch it keeps the GPU busy meanwhile, and prints one line more:\n"
	"how much of the GPU's time it got. Without --alloc it takes none and shows the GPU's total and free.\n"
	"\n"
	"  --alloc SIZE    memory that each process takes: 12GiB, 512MiB, 64KiB, or bytes\n"
	"  --step SIZE     how much at a time (default: all at once)\n"
	"  --api API       how to take it (default linear):\n"
	"                    linear   cuMemAlloc               async    cuMemAllocAsync\n"
	"                    vmm      cuMemCreate, cuMemMap    pitched  cuMemAllocPitch\n"
	"                    managed  cuMemAllocManaged, and brought to the GPU\n"
	"                    pool     cuMemAllocFromPoolAsync, of a pool that keeps what is freed\n"
	"                    array    cuArray3DCreate          graph    an allocation node, launched\n"
	"                    module   a module's global array  heap     the device's heap, by cuCtxSetLimit\n"
	"                    library  the same of a library    printf   the same of printf's buffer\n"
	"                    stack    the same of threads' stacks\n"
	"                    context  contexts, as many as come to the size; green: green ones\n"
	"                    batch    as managed, by cuMemPrefetchBatchAsync\n"
	"                    sparse   mapped into a sparse array, which alone holds it\n"
	"                    multicast   bound to a multicast object, the same\n"
	"                    multicast-v2  the same by the call of CUDA 13.1\n"
	"                    external    imported by cuImportExternalMemory, the same; external-mipmap: as an array\n"
	"                    mipmap   cuMipmappedArrayCreate\n"
	"                    graphics    as a graphics driver would, past CUDA (simulated alone)\n"
	"                    gl       the same, as a buffer that CUDA maps; gl-image, egl, vdpau: images and surfaces\n"
	"                    gl-array  as gl-image, mapped as an array; gl-old: as gl, by the calls of before CUDA 3\n"
	"                    egl-consumer  frames of an EGL stream; egl-producer: cuMemAlloc, presented to one\n"
	"                    gl-context, vdpau-context  as context, by these interfaces' own calls\n"
	"                    ipc      made by another process, imported by cuIpcOpenMemHandle, and freed by its maker;\n"
	"                    import, pool-import  the same by cuMemImportFromShareableHandle, cuMemPoolImportPointer\n"
	"                    file     exported by cuMemExportToShareableHandle and released: the file holds it\n"
	"                    checkpoint  of other processes, which are saved and restored in turn\n"
	"  --more SIZE     for each line of its input take so much more, and print a line again; then hold it\n"
	"  --hold TIME     how long to hold it: 500ms, 5s, 1m (default: not at all)\n"
	"  --launch HOW    launch kernels for that time: plain (cuLaunchKernel), ex (cuLaunchKernelEx),\n"
	"                  cooperative (cuLaunchCooperativeKernel), graph (of four kernels), multi (a list of one, by\n"
	"                  cuLaunchCooperativeKernelMultiDevice); or, as long as the simulated GPU takes for it, fill or\n"
	"                  copy memory (cuMemsetD8Async, cuMemcpyDtoDAsync), a gigabyte in a millisecond; or write a word\n"
	"                  by cuStreamWriteValue32, which takes no time\n"
	"  --kernel TIME   how long each kernel takes: 500us, 2ms (default 1ms)\n"
	"  --queue N       launches before it waits for them (default 1)\n"
	"  --driver HOW    how to open the driver: usual (default); deepbind (with RTLD_DEEPBIND); namespace (dlmopen);\n"
	"                  apart (by gpuload.so next to this program, which was opened with RTLD_DEEPBIND);\n"
	"                  early (so, with what its constructor has found); elsewhere (by gpuload.so in a name space\n"
	"                  that it alone has, by dlmopen)\n"
	"  --offer WAY     take nothing, but make memory for who asks for it at the input, a socket,\n"
	"                  and hand it over: ipc, vmm, pool; what --api ipc, import and pool-import import is made so,\n"
	"                  by a gpuload that they start\n"
	"  --from-input    import what is made at the other end of the input\n"
	"  --fork N        run N worker processes, each of which takes --alloc; 0: none (default)\n"
	"  --loaders N     once it has the memory, fork N idle children, which keep the driver's files\n"
	"                  open for --hold, as the data loaders of a trainer do; 0: none (default)\n"
	"  --leave         end once these children run, and free nothing: they keep what it took\n"
	"  --gpu INDEX     the CUDA device (default 0)\n"
	"  --touch         fill the memory; without it nothing touches it\n"
	"  --tamper        take nothing, but ask NVML to change the GPU's power limit, compute mode\n"
	"                  and MIG mode, and this process's own memory limit, and print what it answers; nothing is\n"
	"                  put back\n"
	"  --json          print JSON lines\n"
	"  --help          print this\n"
	"\n"
	"exit status: 0 all was allocated (with --tamper: anything was changed), \n"
	"             9 an error was met (also by a worker), 2 wrong usage\n";

static int bad(const char *flag, const char *value, const char *problem, const char *remedy)
{
	fprintf(stderr, "gpuload: --%s %s: %s; %s\n", flag, value, problem, remedy);
	return EXIT_USAGE;
}

/* Reads digits and then one of the units; false on anything else, or when the product does not fit. */
static bool number(const char *s, const char *const units[], const uint64_t factors[], uint64_t *out)
{
	uint64_t n = 0;
	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return false;
	for (int i = 0; units[i]; i++)
		if (strcmp(s, units[i]) == 0)
			return !__builtin_mul_overflow(n, factors[i], out);
	return false;
}

static int size_flag(const char *flag, const char *value, uint64_t *out)
{
	static const char *const units[] = { "", "KiB", "MiB", "GiB", NULL };
	static const uint64_t factors[] = { 1, 1 << 10, 1 << 20, 1 << 30 };
	if (!number(value, units, factors, out))
		return bad(flag, value, "not a size", "write bytes, or a whole number with KiB, MiB or GiB, like 12GiB");
	if (*out == 0)
		return bad(flag, value, "is zero", "write a size above 0, or leave the flag out");
	if (*out > UINT64_C(1) << 50)
		return bad(flag, value, "is beyond any GPU", "write at most 1048576GiB");
	return EXIT_OK;
}

static int time_flag(const char *flag, const char *value, uint64_t *ns)
{
	static const char *const units[] = { "us", "ms", "s", "m", "h", NULL };
	static const uint64_t factors[] = { 1000, 1000000, 1000000000, 60000000000, 3600000000000 };
	if (!number(value, units, factors, ns))
		return bad(flag, value, "not a time", "write a whole number with us, ms, s, m or h, like 500ms or 5s");
	return EXIT_OK;
}

static int count_flag(const char *flag, const char *value, int max, int *out)
{
	static const char *const units[] = { "", NULL };
	static const uint64_t factors[] = { 1 };
	uint64_t n;
	char remedy[64];
	snprintf(remedy, sizeof remedy, "write a whole number from 0 to %d", max);
	if (!number(value, units, factors, &n) || n > (uint64_t)max)
		return bad(flag, value, "not a number in range", remedy);
	*out = (int)n;
	return EXIT_OK;
}

static int api_flag(const char *flag, const char *value, const struct family **out)
{
	char names[500], remedy[520];
	*out = find_api(value);
	if (*out)
		return EXIT_OK;
	api_names(names, sizeof names);
	snprintf(remedy, sizeof remedy, "write one of %s", names);
	return bad(flag, value, "no such interface", remedy);
}

static int launch_flag(const char *flag, const char *value, const struct launcher **out)
{
	char names[100], remedy[120];
	*out = find_launch(value);
	if (*out)
		return EXIT_OK;
	launch_names(names, sizeof names);
	snprintf(remedy, sizeof remedy, "write one of %s", names);
	return bad(flag, value, "no such way to launch", remedy);
}

static int driver_flag(const char *flag, const char *value, const struct opening **out)
{
	char names[100], remedy[120];
	*out = find_opening(value);
	if (*out)
		return EXIT_OK;
	opening_names(names, sizeof names);
	snprintf(remedy, sizeof remedy, "write one of %s", names);
	return bad(flag, value, "no such way to the driver", remedy);
}

static int offer_flag(const char *flag, const char *value, const struct handover **out)
{
	char names[100], remedy[120];
	*out = find_handover(value);
	if (*out)
		return EXIT_OK;
	handover_names(names, sizeof names);
	snprintf(remedy, sizeof remedy, "write one of %s", names);
	return bad(flag, value, "no such way to hand memory over", remedy);
}

/* What must go together. */
static int check(struct options *o)
{
	if (o->step && !o->alloc && !o->more)
		return bad("step", "", "there is nothing to take in steps", "write --alloc SIZE too");
	if (o->more && (o->launch || o->workers))
		return bad("more", "", "does not go with --launch or --fork", "leave one of them out");
	if (o->loaders && !o->hold_ns)
		return bad("loaders", "", "there is no time for them", "write --hold TIME too");
	if (o->leave && !o->loaders)
		return bad("leave", "", "there are no children to keep the memory", "write --loaders N too");
	if (!o->launch && (o->kernel_ns || o->queue))
		return bad(o->queue ? "queue" : "kernel", "", "there is nothing to launch", "write --launch HOW too");
	if (o->launch && !o->hold_ns)
		return bad("launch", "", "there is no time for it", "write --hold TIME too");
	if (o->tamper && (o->alloc || o->more || o->launch || o->workers))
		return bad("tamper", "", "does not go with taking memory or launching", "write it alone, or with --gpu INDEX");
	if (o->offer && (o->alloc || o->more || o->launch || o->workers || o->tamper || o->from_input))
		return bad("offer", "", "does not go with taking memory or launching",
			"write it alone, or with --gpu INDEX and --driver HOW");
	if (o->from_input && (o->more || o->workers))
		return bad("from-input", "", "does not go with --more or --fork", "leave one of them out");
	if (!o->kernel_ns)
		o->kernel_ns = 1000000;
	if (!o->queue)
		o->queue = 1;
	return EXIT_OK;
}

int parse_options(int argc, char **argv, struct options *o, bool *done)
{
	enum { ALLOC = 1, STEP, API, MORE, HOLD, LAUNCH, KERNEL, QUEUE, DRIVER, FORK, GPU, TOUCH, TAMPER, JSON, OFFER, FROM,
		LOADERS, LEAVE, HELP };
	static const struct option flags[] = {
		{ "alloc", required_argument, NULL, ALLOC }, { "step", required_argument, NULL, STEP },
		{ "api", required_argument, NULL, API },     { "more", required_argument, NULL, MORE },
		{ "hold", required_argument, NULL, HOLD },
		{ "launch", required_argument, NULL, LAUNCH }, { "kernel", required_argument, NULL, KERNEL },
		{ "queue", required_argument, NULL, QUEUE }, { "driver", required_argument, NULL, DRIVER },
		{ "fork", required_argument, NULL, FORK },   { "gpu", required_argument, NULL, GPU },
		{ "touch", no_argument, NULL, TOUCH },       { "tamper", no_argument, NULL, TAMPER },
		{ "json", no_argument, NULL, JSON },         { "offer", required_argument, NULL, OFFER },
		{ "from-input", no_argument, NULL, FROM },   { "loaders", required_argument, NULL, LOADERS },
		{ "leave", no_argument, NULL, LEAVE },	     { "help", no_argument, NULL, HELP },
		{ NULL, 0, NULL, 0 },
	};
	unsigned seen = 0;
	int flag, ret = EXIT_OK;
	*o = (struct options){ .api = find_api("linear"), .driver = find_opening("usual") };
	*done = false;
	opterr = 0;
	while (!ret && (flag = getopt_long(argc, argv, "+:", flags, NULL)) != -1) {
		if (flag == ':' || flag == '?') {
			fprintf(stderr, "gpuload: %s: %s; run gpuload --help for the flags\n", argv[optind - 1],
				flag == ':' ? "needs a value" : "no such flag, or it takes no value");
			return EXIT_USAGE;
		}
		const char *name = flags[flag - 1].name;
		if (seen & 1u << flag)
			return bad(name, optarg ? optarg : "", "given twice", "write it once");
		seen |= 1u << flag;
		switch (flag) {
		case ALLOC:
			ret = size_flag(name, optarg, &o->alloc);
			break;
		case STEP:
			ret = size_flag(name, optarg, &o->step);
			break;
		case API:
			ret = api_flag(name, optarg, &o->api);
			break;
		case MORE:
			ret = size_flag(name, optarg, &o->more);
			break;
		case HOLD:
			ret = time_flag(name, optarg, &o->hold_ns);
			break;
		case LAUNCH:
			ret = launch_flag(name, optarg, &o->launch);
			break;
		case KERNEL:
			ret = time_flag(name, optarg, &o->kernel_ns);
			break;
		case QUEUE:
			ret = count_flag(name, optarg, 1024, &o->queue);
			break;
		case DRIVER:
			ret = driver_flag(name, optarg, &o->driver);
			break;
		case FORK:
			ret = count_flag(name, optarg, 1024, &o->workers);
			break;
		case LOADERS:
			ret = count_flag(name, optarg, 64, &o->loaders);
			break;
		case LEAVE:
			o->leave = true;
			break;
		case GPU:
			ret = count_flag(name, optarg, 63, &o->gpu);
			break;
		case TOUCH:
			o->touch = true;
			break;
		case TAMPER:
			o->tamper = true;
			break;
		case JSON:
			o->json = true;
			break;
		case OFFER:
			ret = offer_flag(name, optarg, &o->offer);
			break;
		case FROM:
			o->from_input = true;
			break;
		case HELP:
			fputs(help, stdout);
			*done = true;
			return EXIT_OK;
		}
	}
	if (ret)
		return ret;
	if (optind < argc) {
		fprintf(stderr, "gpuload: %s: gpuload takes flags only; run gpuload --help for them\n", argv[optind]);
		return EXIT_USAGE;
	}
	return check(o);
}
