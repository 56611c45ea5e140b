/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The client's side of MPS. A control daemon that answers behind CUDA_MPS_PIPE_DIRECTORY makes this process one of
 * its server's; where none answers the process runs without, and gets no error, as with the real driver.
 *
 * The daemon is written "client", and answers "server PID PERCENT", a line "UUID BYTES" for each of the server's GPUs
 * (BYTES 0: no limit) and "end"; or "fail CODE" with the code that cuInit shall return. The connection stays: by it
 * the daemon counts its clients.
 */
#include "cuda_mps.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_PIPE "/tmp/nvidia-mps"

static int control = -1; /* guarded by cuInit's mutex */

void cuda_mps_leave(void)
{
	if (control >= 0)
		close(control);
	control = -1;
}

void cuda_mps_forget(void)
{
	control = -1;
}

static int dial(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	int n = snprintf(addr.sun_path, sizeof addr.sun_path, "%s/control", dir && *dir ? dir : DEFAULT_PIPE);
	if (n < 0 || (size_t)n >= sizeof addr.sun_path)
		return -1;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Reads to the line "end", or to the end. */
static bool ask(int fd, char *text, size_t size)
{
	static const char request[] = "client\n";
	size_t len = 0;
	if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)(sizeof request - 1))
		return false;
	while (len + 1 < size) {
		ssize_t n = recv(fd, text + len, size - 1 - len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		text[len] = 0;
		if (len >= 4 && strcmp(text + len - 4, "end\n") == 0)
			break;
	}
	text[len] = 0;
	return len > 0;
}

/* What the server has of the process's GPUs, in the server's order; returns how many. */
static int keep(struct device *list, int n, const char *text, uint64_t *limit)
{
	struct device kept[GPUSIM_MAX_MINORS];
	char line[160], uuid[96];
	int count = 0;
	for (unsigned i = 1; gpusim_line(text, i, line, sizeof line) && count < GPUSIM_MAX_MINORS; i++) {
		unsigned long long bytes;
		if (sscanf(line, "%95s %llu", uuid, &bytes) != 2)
			continue;
		for (int k = 0; k < n; k++)
			if (strcmp(list[k].uuid, uuid) == 0) {
				limit[count] = bytes ? bytes : GPUSIM_UNKNOWN;
				kept[count] = list[k];
				kept[count].mps_at = count;
				count++;
			}
	}
	memcpy(list, kept, (size_t)count * sizeof list[0]);
	return count;
}

CUresult cuda_mps_connect(struct mps *mps, struct device *list, int *n)
{
	char text[MAX_TEXT];
	memset(mps, 0, sizeof *mps);
	if ((control = dial()) < 0)
		return CUDA_SUCCESS;
	int code = CUDA_ERROR_MPS_CONNECTION_FAILED;
	if (!ask(control, text, sizeof text) || sscanf(text, "server %d %u", &mps->server, &mps->percent) != 2) {
		sscanf(text, "fail %d", &code);
		cuda_mps_leave();
		return (CUresult)code;
	}
	*n = keep(list, *n, text, mps->limit);
	const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	double own = percent ? atof(percent) : 0;
	if (own > 0 && own < mps->percent)
		mps->percent = own < 1 ? 1 : (unsigned)own;
	return CUDA_SUCCESS;
}

/* One entry of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: DEVICE=NUMBER and G, GB, M or MB. -1: it names no visible GPU. */
static int entry(const struct device *list, int n, const char *p, size_t len, uint64_t *bytes)
{
	char text[160], *end;
	int found = -1;
	if (len >= sizeof text)
		return -1;
	memcpy(text, p, len);
	text[len] = 0;
	char *value = strchr(text, '=');
	if (!value)
		return -1;
	*value++ = 0;
	unsigned long long number = strtoull(value, &end, 10);
	int unit = toupper((unsigned char)*end);
	if (end == value || (unit != 'G' && unit != 'M') || number >= (1ull << 33))
		return -1;
	*bytes = (uint64_t)number << (unit == 'G' ? 30 : 20);
	if (strncmp(text, "GPU-", 4) == 0) {
		for (int i = 0; i < n; i++)
			if (strncmp(list[i].uuid, text, strlen(text)) == 0)
				found = i;
		return found;
	}
	unsigned long ordinal = strtoul(text, &end, 10);
	return end != text && !*end && ordinal < (unsigned long)n ? (int)ordinal : -1;
}

/* The process's own limits; one entry that is wrong, or names a GPU that is not visible, drops them all. */
static bool own_limits(const struct device *list, int n, uint64_t *limit)
{
	uint64_t own[GPUSIM_MAX_MINORS] = { 0 }, bytes;
	const char *p = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	while (p && *p) {
		size_t len = strcspn(p, ",");
		int i = entry(list, n, p, len, &bytes);
		if (i < 0)
			return false;
		own[i] = bytes;
		p += len + (p[len] == ',');
	}
	for (int i = 0; i < n; i++)
		if (own[i] && own[i] < limit[list[i].mps_at])
			limit[list[i].mps_at] = own[i];
	return true;
}

CUresult cuda_mps_join(struct mps *mps, struct device *list, int n)
{
	if (!mps->server)
		return CUDA_SUCCESS;
	if (!own_limits(list, n, mps->limit))
		memset(mps->limit, 0xFF, sizeof mps->limit);
	for (int i = 0; i < n; i++) {
		const uint64_t args[GPUSIM_NARGS] = { (uint64_t)mps->server, mps->limit[list[i].mps_at], mps->percent };
		switch (gpusim_call(list[i].conn, GPUSIM_OP_MPS_JOIN, args, NULL, NULL)) {
		case GPUSIM_OK:
			break;
		case GPUSIM_INSUFFICIENT:
			return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
		case GPUSIM_NOT_READY:
			return CUDA_ERROR_MPS_SERVER_NOT_READY;
		default:
			return CUDA_ERROR_MPS_CONNECTION_FAILED;
		}
		list[i].mps = true;
		list[i].sms = list[i].sms * mps->percent / 100;
		list[i].sms += !list[i].sms;
	}
	return CUDA_SUCCESS;
}
