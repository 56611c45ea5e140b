/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that another process makes and hands over, and then frees, so that who imported it alone has it. The other one
 * is a gpuload that this one starts, or the process at the other end of its input. And memory that no process has,
 * but a file that stands for it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

/* What the two say to each other, one packet each, and with a BLOCK a descriptor where the way has one. */
enum word { MAKE = 1, BLOCK, FREE, FREED };
struct packet {
	uint32_t word;
	int32_t result;
	uint64_t bytes;
	unsigned char data[64];
};

static bool say(int socket, const struct packet *packet, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} with = { 0 };
	struct iovec out = { (void *)packet, sizeof *packet };
	struct msghdr m = { .msg_iov = &out, .msg_iovlen = 1 };
	if (fd >= 0) {
		m.msg_control = &with;
		m.msg_controllen = sizeof with;
		with.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&with.header), &fd, sizeof fd);
	}
	ssize_t n;
	do
		n = sendmsg(socket, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof *packet;
}

/* fd is -1 where none came. */
static bool hear(int socket, struct packet *packet, int *fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} with;
	struct iovec in = { packet, sizeof *packet };
	struct msghdr m = { .msg_iov = &in, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with };
	ssize_t n;
	do
		n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	*fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), sizeof *fd);
	return n == (ssize_t)sizeof *packet;
}

struct handover {
	const char *name;
	CUresult (*make)(struct load *l, struct block *p, struct packet *out, int *fd);
	void (*destroy)(struct load *l, struct block *p);
};

/* The maker's side. */

static CUresult make_ipc(struct load *l, struct block *p, struct packet *out, int *fd)
{
	CUipcMemHandle handle;
	(void)fd;
	TRY(l->cuda.alloc(&p->ptr, p->bytes));
	CUresult ret = l->cuda.ipc_get(&handle, p->ptr);
	if (ret)
		l->cuda.free(p->ptr);
	else
		memcpy(out->data, &handle, sizeof handle);
	return ret;
}

static void destroy_ipc(struct load *l, struct block *p)
{
	l->cuda.free(p->ptr);
}

static CUresult make_vmm(struct load *l, struct block *p, struct packet *out, int *fd)
{
	(void)out;
	TRY(make_whole(l, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &p->handle));
	CUresult ret = l->cuda.export_handle(fd, p->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (ret)
		l->cuda.release_handle(p->handle);
	return ret;
}

static void destroy_vmm(struct load *l, struct block *p)
{
	l->cuda.release_handle(p->handle);
}

/* The pool gives back at once what is freed. */
static CUresult make_pool(struct load *l, struct block *p, struct packet *out, int *fd)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, l->device } };
	CUmemPoolPtrExportData data;
	if (!l->pool)
		TRY(l->cuda.pool_create(&l->pool, &props));
	TRY(l->cuda.alloc_from_pool(&p->ptr, p->bytes, l->pool, NULL));
	CUresult ret = l->cuda.stream_sync(NULL);
	if (!ret)
		ret = l->cuda.pool_export_pointer(&data, p->ptr);
	if (!ret)
		ret = l->cuda.pool_export(fd, l->pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (ret)
		l->cuda.free_async(p->ptr, NULL);
	else
		memcpy(out->data, &data, sizeof data);
	return ret;
}

static void destroy_pool(struct load *l, struct block *p)
{
	l->cuda.free_async(p->ptr, NULL);
	l->cuda.stream_sync(NULL);
}

static const struct handover handovers[] = {
	{ "ipc", make_ipc, destroy_ipc },
	{ "vmm", make_vmm, destroy_vmm },
	{ "pool", make_pool, destroy_pool },
};
enum { HANDOVERS = sizeof handovers / sizeof handovers[0] };

const struct handover *find_handover(const char *name)
{
	for (int i = 0; i < HANDOVERS; i++)
		if (strcmp(name, handovers[i].name) == 0)
			return &handovers[i];
	return NULL;
}

void handover_names(char *out, size_t size)
{
	size_t n = 0;
	out[0] = 0;
	for (int i = 0; i < HANDOVERS && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", handovers[i].name);
}

static bool whole(const struct driver *d)
{
	return d->export_handle && d->import_handle && d->ipc_get && d->ipc_open && d->ipc_close && d->pool_export &&
	       d->pool_import && d->pool_export_pointer && d->pool_import_pointer;
}

/* What was made last is what is freed. */
bool offer(struct load *l, const struct options *o)
{
	struct packet in;
	int none;
	while (hear(STDIN_FILENO, &in, &none)) {
		struct packet out = { .word = in.word == MAKE ? BLOCK : FREED };
		int fd = -1;
		if (in.word == MAKE) {
			struct block *p = calloc(1, sizeof *p);
			if (!p)
				return false;
			p->bytes = in.bytes;
			out.result = whole(&l->cuda) ? o->offer->make(l, p, &out, &fd) : CUDA_ERROR_NOT_SUPPORTED;
			out.bytes = p->bytes;
			p->next = out.result ? NULL : l->blocks;
			if (out.result)
				free(p);
			else
				l->blocks = p;
		} else if (l->blocks) {
			struct block *p = l->blocks;
			l->blocks = p->next;
			o->offer->destroy(l, p);
			free(p);
		}
		bool said = say(STDIN_FILENO, &out, fd);
		if (fd >= 0)
			close(fd);
		if (!said)
			break;
	}
	while (l->blocks) {
		struct block *p = l->blocks;
		l->blocks = p->next;
		o->offer->destroy(l, p);
		free(p);
	}
	return true;
}

/* The importer's side. */

/* Becomes a gpuload that makes memory for who is at the socket. */
static void become(const struct load *l, const char *kind, int socket)
{
	char which[16];
	snprintf(which, sizeof which, "%d", l->device);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(socket, STDIN_FILENO) >= 0)
		execl("/proc/self/exe", "gpuload", "--offer", kind, "--gpu", which, "--driver", opening_name(l->how),
			(char *)NULL);
	_exit(EXIT_MET_ERROR);
}

static CUresult meet(struct load *l, const char *kind)
{
	int ends[2];
	if (l->peer >= 0)
		return CUDA_SUCCESS;
	if (!whole(&l->cuda))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pid_t pid = fork();
	if (pid == 0)
		become(l, kind, ends[1]);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	l->peer = ends[0];
	return CUDA_SUCCESS;
}

/* A peer that has ended, as one that could not have a context, had no room. */
static CUresult ask(struct load *l, enum word word, struct packet *got, int *fd)
{
	const struct packet out = { .word = word, .bytes = got->bytes };
	if (!say(l->peer, &out, -1) || !hear(l->peer, got, fd))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return got->result;
}

static CUresult import_ipc(struct load *l, struct block *p, const struct packet *got, int fd)
{
	CUipcMemHandle handle;
	(void)fd;
	memcpy(&handle, got->data, sizeof handle);
	return l->cuda.ipc_open(&p->ptr, handle, 1); /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
}

static CUresult import_vmm(struct load *l, struct block *p, const struct packet *got, int fd)
{
	(void)got;
	return l->cuda.import_handle(&p->handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult import_pool(struct load *l, struct block *p, const struct packet *got, int fd)
{
	CUmemPoolPtrExportData data;
	memcpy(&data, got->data, sizeof data);
	if (!l->pool)
		TRY(l->cuda.pool_import(&l->pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return l->cuda.pool_import_pointer(&p->ptr, l->pool, &data);
}

static CUresult take(struct load *l, struct block *p, const char *kind,
		     CUresult (*import)(struct load *, struct block *, const struct packet *, int))
{
	struct packet got = { .bytes = p->bytes }, freed = { 0 };
	int fd = -1, none;
	TRY(meet(l, kind));
	TRY(ask(l, MAKE, &got, &fd));
	p->bytes = got.bytes;
	CUresult ret = import(l, p, &got, fd);
	if (fd >= 0)
		close(fd);
	CUresult let = ask(l, FREE, &freed, &none);
	return ret ? ret : l->lone ? CUDA_SUCCESS : let;
}

CUresult take_ipc(struct load *l, struct block *p)
{
	return take(l, p, "ipc", import_ipc);
}

void give_ipc(struct load *l, struct block *p)
{
	l->cuda.ipc_close(p->ptr);
}

CUresult take_import(struct load *l, struct block *p)
{
	return take(l, p, "vmm", import_vmm);
}

void give_import(struct load *l, struct block *p)
{
	l->cuda.release_handle(p->handle);
}

CUresult take_pool_import(struct load *l, struct block *p)
{
	return take(l, p, "pool", import_pool);
}

void give_pool_import(struct load *l, struct block *p)
{
	l->cuda.free(p->ptr);
}

CUresult take_file(struct load *l, struct block *p)
{
	CUmemGenericAllocationHandle handle;
	struct rlimit files;
	if (!l->cuda.export_handle)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!l->blocks && !getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max) { /* each block is one */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	TRY(make_whole(l, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &handle));
	CUresult ret = l->cuda.export_handle(&p->file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	l->cuda.release_handle(handle);
	return ret;
}

void give_file(struct load *l, struct block *p)
{
	(void)l;
	close(p->file);
}
