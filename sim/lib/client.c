/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Connections to the simulated kernel driver; see client.h and protocol.h.
 */
#include "client.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define RESPONSE_MAX (sizeof(struct gpusim_response) + GPUSIM_MAX_VALS * sizeof(uint64_t) + GPUSIM_MAX_TEXT)

static pthread_mutex_t list_mu = PTHREAD_MUTEX_INITIALIZER;
static struct gpusim_conn *connections; /* guarded by list_mu; entries are never taken out */
static void (*fork_child)(void);
static char lib_dev[PATH_MAX]; /* DIR/dev for a library loaded as DIR/lib/libX.so.1; empty if unknown */
static char tree[PATH_MAX];    /* ROOT for a library loaded as ROOT SYSTEM_LIB/libX.so.1 */
static bool in_tree;	       /* whether the library was loaded from such a folder */

#ifdef __aarch64__
#define SYSTEM_LIB "/usr/lib/aarch64-linux-gnu"
#else
#define SYSTEM_LIB "/usr/lib/x86_64-linux-gnu"
#endif
#define TREE_SOCKETS "/run/gpusim/dev"

static void cut_last(char *path)
{
	char *slash = strrchr(path, '/');
	if (slash)
		*slash = 0;
}

/* Where the library lies is asked for as it is loaded, because a relative path means nothing after the
 * program's next chdir. Links are not resolved: DIR/lib may well be a link to where the libraries were
 * built, and DIR is what counts. */
static void find_lib_dev(void)
{
	Dl_info info;
	char path[PATH_MAX], cwd[PATH_MAX] = "";
	if (!dladdr((void *)&connections, &info) || !info.dli_fname || !strchr(info.dli_fname, '/'))
		return;
	bool relative = info.dli_fname[0] != '/';
	if (relative && !getcwd(cwd, sizeof cwd))
		return;
	int n = snprintf(path, sizeof path, "%s%s%s", cwd, relative ? "/" : "", info.dli_fname);
	if (n < 0 || (size_t)n >= sizeof path)
		return;
	cut_last(path); /* the library's name */
	size_t len = strlen(path);
	while (len >= 2 && strcmp(path + len - 2, "/.") == 0)
		path[len -= 2] = 0;
	if (realpath(path, tree)) {
		size_t n_tree = strlen(tree), system = strlen(SYSTEM_LIB);
		in_tree = n_tree >= system && strcmp(tree + n_tree - system, SYSTEM_LIB) == 0;
		if (in_tree) {
			tree[n_tree - system] = 0;
			return;
		}
	}
	if (len < 4 || strcmp(path + len - 4, "/lib") != 0)
		return;
	cut_last(path);
	n = snprintf(lib_dev, sizeof lib_dev, "%s/dev", path);
	if (n < 0 || (size_t)n >= sizeof lib_dev)
		lib_dev[0] = 0;
}

/* In a tree of gpusim root, the device files are those that NVIDIA's tools expect, and the sockets are elsewhere. A GPU
 * needs both, so that a container without the device file does not reach it. A container that has GPUs in /dev reaches
 * these only, also by the libraries of a mounted driver root, because NVIDIA's libraries open the files of /dev. */
static const char *socket_dir(char *path, size_t size)
{
	char ctl[PATH_MAX + 64];
	struct stat st;
	if (!in_tree || (stat("/dev/nvidiactl", &st) == 0 && S_ISSOCK(st.st_mode)))
		return NULL;
	snprintf(ctl, sizeof ctl, "%s" TREE_SOCKETS "/nvidiactl", tree);
	if (stat(ctl, &st) != 0)
		return NULL;
	snprintf(path, size, "%s" TREE_SOCKETS, tree);
	return path;
}

static const char *dev_dir(void)
{
	static char tree_dev[PATH_MAX + 8];
	char ctl[PATH_MAX + 64];
	struct stat st;
	if (in_tree && socket_dir(ctl, sizeof ctl)) {
		snprintf(tree_dev, sizeof tree_dev, "%s/dev", tree);
		return tree_dev;
	}
	if (lib_dev[0]) {
		snprintf(ctl, sizeof ctl, "%s/nvidiactl", lib_dev);
		if (stat(ctl, &st) == 0)
			return lib_dev;
	}
	return "/dev";
}

bool gpusim_node_file(const char *name, char *path, size_t size)
{
	int n = snprintf(path, size, "%s/../%s", lib_dev, name);
	return lib_dev[0] && n > 0 && (size_t)n < size;
}

/* Gives a socket a unique name, which no file has. */
static bool call_it(int fd, const char *as)
{
	struct sockaddr_un own = { .sun_family = AF_UNIX };
	size_t n = strlen(as);
	if (n >= sizeof own.sun_path)
		return false;
	memcpy(own.sun_path + 1, as, n);
	return bind(fd, (struct sockaddr *)&own, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0;
}

/* Opens the device's file, in addition to the connection to it: /proc/PID/fd then shows which GPUs a process uses,
 * as it does with a real driver. */
static int open_file(const char *name)
{
	char path[PATH_MAX + 32];
	snprintf(path, sizeof path, "%s/%s", dev_dir(), name);
	return open(path, O_PATH | O_CLOEXEC);
}

/* A socket's address holds 107 bytes of path; a longer one is reached through a descriptor of its folder. as is the
 * socket's own name; NULL: none. */
static int connect_to(const char *name, const char *as)
{
	char sockets[PATH_MAX + 64];
	const char *dir = socket_dir(sockets, sizeof sockets);
	if (!dir)
		dir = dev_dir();
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (as && !call_it(fd, as)) {
		close(fd);
		return -1;
	}
	int dirfd = -1;
	int n = snprintf(addr.sun_path, sizeof addr.sun_path, "%s/%s", dir, name);
	if (n < 0 || (size_t)n >= sizeof addr.sun_path) {
		dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dirfd < 0) {
			close(fd);
			return -1;
		}
		snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d/%s", dirfd, name);
	}
	int rc;
	do
		rc = connect(fd, (struct sockaddr *)&addr, sizeof addr);
	while (rc < 0 && errno == EINTR);
	if (dirfd >= 0)
		close(dirfd);
	if (rc < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The connection first: no process may see one without its file. */
static void close_locked(struct gpusim_conn *c)
{
	int saved = errno;
	int fd = __atomic_exchange_n(&c->fd, -1, __ATOMIC_ACQ_REL);
	if (fd >= 0)
		close(fd);
	if (c->file >= 0)
		close(c->file);
	c->file = -1;
	errno = saved;
}

bool gpusim_open(struct gpusim_conn *c, int minor)
{
	char name[32];
	if (minor == GPUSIM_CTL)
		snprintf(name, sizeof name, "nvidiactl");
	else
		snprintf(name, sizeof name, "nvidia%d", minor);

	pthread_mutex_lock(&c->mu);
	if (c->fd < 0 && (c->buf || (c->buf = malloc(RESPONSE_MAX))) && (c->file = open_file(name)) >= 0) {
		__atomic_store_n(&c->fd, connect_to(name, NULL), __ATOMIC_RELEASE);
		if (c->fd < 0)
			close_locked(c);
	}
	bool ok = c->fd >= 0;
	pthread_mutex_unlock(&c->mu);

	pthread_mutex_lock(&list_mu);
	if (!c->listed) {
		c->listed = true;
		c->next = connections;
		connections = c;
	}
	pthread_mutex_unlock(&list_mu);
	return ok;
}

void gpusim_close(struct gpusim_conn *c)
{
	pthread_mutex_lock(&c->mu);
	close_locked(c);
	pthread_mutex_unlock(&c->mu);
}

void gpusim_interrupt(struct gpusim_conn *c)
{
	/* Without the mutex, which the waiting call holds. The descriptor stays open until that call sees the
	 * end of it, so its number cannot have been given to another file. */
	int fd = __atomic_load_n(&c->fd, __ATOMIC_ACQUIRE);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
}

static bool exchange(struct gpusim_conn *c, const struct gpusim_request *req, const char *text, ssize_t *got)
{
	struct iovec out[2] = {
		{ .iov_base = (void *)req, .iov_len = sizeof *req },
		{ .iov_base = (void *)text, .iov_len = req->text_len },
	};
	struct msghdr msg = { .msg_iov = out, .msg_iovlen = 2 };
	ssize_t n;
	do
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)(sizeof *req + req->text_len))
		return false;

	struct iovec in = { .iov_base = c->buf, .iov_len = RESPONSE_MAX };
	struct msghdr answer = { .msg_iov = &in, .msg_iovlen = 1 };
	do
		n = recvmsg(c->fd, &answer, 0);
	while (n < 0 && errno == EINTR);
	*got = n;
	return n >= (ssize_t)sizeof(struct gpusim_response) && !(answer.msg_flags & MSG_TRUNC);
}

int gpusim_call(struct gpusim_conn *c, uint32_t op, const uint64_t args[GPUSIM_NARGS], const char *text,
		struct gpusim_reply *reply)
{
	struct gpusim_request req = { .version = GPUSIM_VERSION, .op = op };
	struct gpusim_response res;
	ssize_t got = 0;
	size_t len = text ? strlen(text) : 0;
	if (len > GPUSIM_MAX_TEXT)
		return GPUSIM_INVALID;
	if (args)
		memcpy(req.arg, args, sizeof req.arg);
	req.text_len = (uint32_t)len;

	pthread_mutex_lock(&c->mu);
	int status = GPUSIM_BROKEN;
	if (c->fd < 0)
		goto out;
	if (!exchange(c, &req, text, &got)) {
		close_locked(c);
		goto out;
	}
	memcpy(&res, c->buf, sizeof res);
	if (res.status < 0 || res.nvals > GPUSIM_MAX_VALS || res.text_len > GPUSIM_MAX_TEXT ||
	    (size_t)got != sizeof res + res.nvals * sizeof(uint64_t) + res.text_len) {
		close_locked(c);
		goto out;
	}
	status = res.status;
	if (reply) {
		const unsigned char *vals = c->buf + sizeof res;
		size_t n = res.nvals < reply->max_vals ? res.nvals : reply->max_vals;
		reply->nvals = res.nvals;
		if (n)
			memcpy(reply->vals, vals, n * sizeof(uint64_t));
		if (reply->max_text) {
			n = res.text_len < reply->max_text ? res.text_len : reply->max_text - 1;
			memcpy(reply->text, vals + res.nvals * sizeof(uint64_t), n);
			reply->text[n] = 0;
		}
	}
out:
	pthread_mutex_unlock(&c->mu);
	return status;
}

int gpusim_export(int minor, uint64_t address, const char *name, int *fd)
{
	char gpu[32];
	const uint64_t args[GPUSIM_NARGS] = { address };
	struct gpusim_conn c = GPUSIM_CONN_INIT; /* in no list: a child of a fork has the file, too */
	snprintf(gpu, sizeof gpu, "nvidia%d", minor);
	c.buf = malloc(RESPONSE_MAX);
	if (!c.buf)
		return GPUSIM_BROKEN;
	c.fd = connect_to(gpu, name);
	int status = gpusim_call(&c, GPUSIM_OP_EXPORT, args, NULL, NULL);
	free(c.buf);
	if (status)
		close_locked(&c);
	*fd = c.fd;
	return status;
}

bool gpusim_exported(int fd, char *name, size_t size)
{
	struct sockaddr_un own;
	socklen_t len = sizeof own;
	const size_t before = offsetof(struct sockaddr_un, sun_path) + 1;
	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0 || own.sun_family != AF_UNIX || len <= before ||
	    own.sun_path[0] || len - before >= size)
		return false;
	memcpy(name, own.sun_path + 1, len - before);
	name[len - before] = 0;
	return true;
}

int gpusim_minors(int minors[GPUSIM_MAX_MINORS])
{
	bool there[GPUSIM_MAX_MINORS] = { false };
	int count = 0;
	DIR *dir = opendir(dev_dir());
	if (!dir)
		return 0;
	for (struct dirent *e; (e = readdir(dir));) {
		char *end;
		if (strncmp(e->d_name, "nvidia", 6) != 0 || e->d_name[6] < '0' || e->d_name[6] > '9')
			continue;
		unsigned long minor = strtoul(e->d_name + 6, &end, 10);
		if (*end == 0 && minor < GPUSIM_MAX_MINORS)
			there[minor] = true;
	}
	closedir(dir);
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		if (there[i])
			minors[count++] = i;
	return count;
}

bool gpusim_line(const char *text, unsigned n, char *out, size_t size)
{
	for (; n; n--) {
		text = strchr(text, '\n');
		if (!text)
			return false;
		text++;
	}
	size_t len = strcspn(text, "\n");
	if (len >= size)
		len = size - 1;
	memcpy(out, text, len);
	out[len] = 0;
	return true;
}

void gpusim_at_fork_child(void (*child)(void))
{
	fork_child = child;
}

/* Another thread may hold any mutex at the moment of the fork; the child has only this thread, so it makes
 * them new instead of waiting for a thread that is not there. The inherited descriptors stay open, as those of a real
 * driver's files do: they keep what the parent holds. The child does not talk on them. */
static void in_child(void)
{
	pthread_mutex_init(&list_mu, NULL);
	for (struct gpusim_conn *c = connections; c; c = c->next) {
		pthread_mutex_init(&c->mu, NULL);
		c->fd = c->file = -1;
	}
	if (fork_child)
		fork_child();
}

__attribute__((constructor)) static void on_load(void)
{
	find_lib_dev();
	pthread_atfork(NULL, NULL, in_child);
}

/* A library that is unloaded while the program runs on must leave no connection behind. */
__attribute__((destructor)) static void on_unload(void)
{
	for (struct gpusim_conn *c = connections; c; c = c->next)
		close_locked(c);
}
