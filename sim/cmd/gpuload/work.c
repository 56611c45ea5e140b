/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What one process does: allocate, report, hold or keep the GPU busy, free.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

static const char *name_of(const struct driver *cuda, CUresult result)
{
	static char unnamed[40];
	const char *name = NULL;
	if (cuda->error_name(result, &name) == CUDA_SUCCESS && name)
		return name;
	snprintf(unnamed, sizeof unnamed, "CUDA error %d", result);
	return unnamed;
}

static CUresult open_device(struct load *l, int gpu)
{
	TRY(l->cuda.init(0));
	TRY(l->cuda.device_get(&l->device, gpu));
	TRY(l->cuda.retain(&l->context, l->device));
	return l->cuda.set_current(l->context);
}

/* Steps until it has so much in all or meets an error. */
static CUresult allocate(struct load *l, const struct options *o, uint64_t all)
{
	while (l->allocated < all) {
		uint64_t left = all - l->allocated, bytes = o->step && o->step < left ? o->step : left;
		struct block *p = calloc(1, sizeof *p);
		if (!p)
			return CUDA_ERROR_OUT_OF_MEMORY;
		p->bytes = bytes;
		CUresult ret = o->api->take(l, p);
		if (ret) {
			free(p);
			return ret;
		}
		p->next = l->blocks;
		l->blocks = p;
		l->allocated += p->counted ? p->counted : bytes;
		if (o->touch && p->ptr) {
			TRY(l->cuda.memset(p->ptr, 0xA5, p->bytes));
			TRY(l->cuda.ctx_sync());
		}
	}
	return CUDA_SUCCESS;
}

static void give_back(struct load *l, const struct options *o)
{
	while (l->blocks) {
		struct block *p = l->blocks;
		l->blocks = p->next;
		o->api->give(l, p);
		free(p);
	}
	if (l->pool)
		l->cuda.pool_destroy(l->pool);
	l->cuda.release(l->device);
}

/* The text as the inside of a JSON string. */
static void escape(const char *text, char *out, size_t size)
{
	size_t n = 0;
	for (; *text && n + 7 < size; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			n += (size_t)snprintf(out + n, size - n, "\\%c", c);
		else if (c < 0x20)
			n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
		else
			out[n++] = (char)c;
	}
	out[n] = 0;
}

/* One line in one write, so that the lines of several workers do not mix. */
static void put(const char *line, int n)
{
	for (int done = 0; done < n;) {
		ssize_t w = write(STDOUT_FILENO, line + done, (size_t)(n - done));
		if (w < 0 && errno != EINTR)
			return;
		done += w > 0 ? (int)w : 0;
	}
}

static void report(const struct load *l, bool json)
{
	char line[1200], error[520] = "null", text[512], total[32] = "null", free_[32] = "null";
	int n;
	if (l->known) {
		snprintf(total, sizeof total, "%zu", l->total);
		snprintf(free_, sizeof free_, "%zu", l->free);
	}
	if (json) {
		if (l->error) {
			escape(l->error, text, sizeof text);
			snprintf(error, sizeof error, "\"%s\"", text);
		}
		n = snprintf(line, sizeof line,
			     "{\"pid\":%d,\"allocated_bytes\":%llu,\"error\":%s,\"total_bytes\":%s,"
			     "\"free_bytes\":%s,\"multiprocessors\":%d}\n",
			     (int)getpid(), (unsigned long long)l->allocated, error, total, free_, l->processors);
	} else {
		n = snprintf(line, sizeof line, "gpuload[%d]: allocated %.1f MiB", (int)getpid(),
			     (double)l->allocated / (1 << 20));
		if (l->known)
			n += snprintf(line + n, sizeof line - (size_t)n, ", total %.1f MiB, free %.1f MiB",
				      (double)l->total / (1 << 20), (double)l->free / (1 << 20));
		n += snprintf(line + n, sizeof line - (size_t)n, l->error ? ", %.500s\n" : "\n", l->error);
	}
	put(line, n);
}

static void report_busy(const struct load *l, const struct options *o, const struct busy *b)
{
	char line[1200], error[520] = "null", text[512];
	double got = b->wall_ns ? (double)(b->kernels * o->kernel_ns) / (double)b->wall_ns : 0;
	int n;
	if (o->json) {
		if (l->error) {
			escape(l->error, text, sizeof text);
			snprintf(error, sizeof error, "\"%s\"", text);
		}
		n = snprintf(line, sizeof line,
			     "{\"pid\":%d,\"launches\":%llu,\"gpu_ns\":%llu,\"wall_ns\":%llu,\"error\":%s}\n", (int)getpid(),
			     (unsigned long long)b->launches, (unsigned long long)(b->kernels * o->kernel_ns),
			     (unsigned long long)b->wall_ns, error);
	} else {
		n = snprintf(line, sizeof line, "gpuload[%d]: %llu launches, %.1f %% of the GPU's time%s%.500s\n",
			     (int)getpid(), (unsigned long long)b->launches, 100 * got, l->error ? ", " : "",
			     l->error ? l->error : "");
	}
	put(line, n);
}

static void hold(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

/* Forks the idle children. They end by themselves, and live on when this process ends before them. */
static bool start_loaders(const struct options *o)
{
	for (int i = 0; i < o->loaders; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			fprintf(stderr, "gpuload: fork loader %d of %d: %s\n", i + 1, o->loaders, strerror(errno));
			return false;
		}
		if (pid == 0) {
			hold(o->hold_ns);
			_exit(EXIT_OK);
		}
	}
	return true;
}

/* What it has got, or why not, and what it sees of the GPU now. */
static void tell(struct load *l, const struct options *o, CUresult ret)
{
	l->error = ret ? name_of(&l->cuda, ret) : NULL;
	l->known = l->context && l->cuda.mem_info(&l->free, &l->total) == CUDA_SUCCESS;
	report(l, o->json);
}

/* Takes more for each line, also after one for which there was nothing. */
static void take_more(struct load *l, const struct options *o)
{
	for (int c; (c = getchar()) != EOF;)
		if (c == '\n')
			tell(l, o, allocate(l, o, l->allocated + o->more));
}

int work(const struct options *o)
{
	struct load l = { .peer = o->from_input ? STDIN_FILENO : -1, .lone = o->from_input, .how = o->driver };
	l.error = load_driver(&l.cuda, o->driver);
	if (l.error) {
		report(&l, o->json);
		return EXIT_MET_ERROR;
	}
	CUresult ret = open_device(&l, o->gpu);
	bool open = !ret;
	if (o->offer)
		return open && offer(&l, o) ? EXIT_OK : EXIT_MET_ERROR;
	if (!ret)
		ret = allocate(&l, o, o->alloc);
	if (open && l.cuda.attribute(&l.processors, MULTIPROCESSOR_COUNT, l.device) != CUDA_SUCCESS)
		l.processors = 0;
	if (!ret && !start_loaders(o))
		return EXIT_MET_ERROR;
	tell(&l, o, ret);
	if (o->leave)
		_exit(ret ? EXIT_MET_ERROR : EXIT_OK);
	if (open) { /* otherwise it holds nothing */
		if (o->more)
			take_more(&l, o);
		if (o->launch && !l.error) {
			struct busy b = { 0 };
			ret = keep_busy(&l, o, &b);
			if (ret)
				l.error = name_of(&l.cuda, ret);
			report_busy(&l, o, &b);
		} else {
			hold(o->hold_ns);
		}
		give_back(&l, o);
	}
	return l.error ? EXIT_MET_ERROR : EXIT_OK;
}
