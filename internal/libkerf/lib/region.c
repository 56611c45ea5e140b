/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The counters: the region's two files, which lie next to the library, and this process's slot in them. Without
 * them there is no memory to be had.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "counter.h"
#include "kerf.h"

#define PATH_SIZE 4096
#define MOVE_PAUSE 100000 /* nanoseconds */
#define MOST_WAITS 2000
#define AGENT_PAUSE 10000000 /* nanoseconds */
#define AGENT_WAITS 100	     /* the agent looks four times a second */
#define PID_MASK ((UINT64_C(1) << 22) - 1)

/* Mapped once and for good; children after a fork have them too. */
static struct kerf_limits *_Atomic limits;
static struct kerf_usage *_Atomic usage;

void kerf_say(const char *const *texts)
{
	char line[160] = "libkerf: ";
	size_t n = strlen(line);
	for (; *texts; texts++)
		for (const char *c = *texts; *c && n < sizeof line - 1; c++)
			line[n++] = *c;
	line[n++] = '\n';
	int before = errno;
	if (write(STDERR_FILENO, line, n) < 0)
		errno = before;
}

static void complain(const char *why)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&said))
		kerf_say((const char *const[]){ why, ": no GPU memory", NULL });
}

static void *map(const char *name, size_t size, bool writable)
{
	char path[PATH_SIZE];
	if (!kerf_folder(path, sizeof path - 16))
		return NULL;
	strcat(strcat(path, "/"), name);
	int before = errno, fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	void *m = MAP_FAILED;
	if (fd >= 0 && lseek(fd, 0, SEEK_END) >= (off_t)size)
		m = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	errno = before;
	return m == MAP_FAILED ? NULL : m;
}

static bool mapped(void)
{
	if (atomic_load_explicit(&limits, memory_order_acquire) && atomic_load_explicit(&usage, memory_order_acquire))
		return true;
	struct kerf_limits *l = map("limits", sizeof *l, false), *no_limits = NULL;
	struct kerf_usage *u = map("usage", sizeof *u, true), *no_usage = NULL;
	bool ok = l && u && l->magic == KERF_LIMITS_MAGIC && l->devices <= KERF_DEVICES && u->magic == KERF_USAGE_MAGIC;
	/* Threads that meet here have mapped the same; one of them is kept. */
	if (!ok || !atomic_compare_exchange_strong(&limits, &no_limits, l))
		if (l)
			munmap(l, sizeof *l);
	if (!ok || !atomic_compare_exchange_strong(&usage, &no_usage, u))
		if (u)
			munmap(u, sizeof *u);
	if (!ok)
		complain("no region of this layout next to the library");
	return ok;
}

/* Pid and, above it, start time: field 22 of /proc/self/stat, of which the second may hold anything. */
static uint64_t owner(void)
{
	char text[1024];
	int before = errno, fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	if (fd >= 0)
		close(fd);
	errno = before;
	if (n <= 0)
		return 0;
	text[n] = 0;
	const char *at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	uint64_t start = 0;
	for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++)
		start = start * 10 + (uint64_t)(*at - '0');
	return start ? start << 22 | ((uint64_t)getpid() & PID_MASK) : 0;
}

/* Another number after each exec, which leaves pid and start time as they are. */
static uint64_t image(void)
{
	uint64_t random = 0;
	const void *from = (const void *)getauxval(AT_RANDOM);
	if (from)
		memcpy(&random, from, sizeof random);
	return random ? random : 1;
}

/* The number in "pid:[4026531836]"; 0: not known. */
static uint64_t space(void)
{
	char text[64];
	int before = errno;
	ssize_t n = readlink("/proc/self/ns/pid", text, sizeof text - 1);
	uint64_t number = 0;
	errno = before;
	for (ssize_t i = 0; i < n; i++)
		if (text[i] >= '0' && text[i] <= '9')
			number = number * 10 + (uint64_t)(text[i] - '0');
	return number;
}

/* Gives back what a slot of this process's has. Its owner may be a process that is gone, or the program that was
 * in this one before an exec. */
static void give_all(struct kerf_usage *u, struct kerf_slot *s)
{
	atomic_store(&s->ended, atomic_load(&s->begun)); /* who held it may have ended between the two */
	atomic_fetch_add(&s->begun, 1);
	atomic_store(&s->making, 0);
	kerf_none_managed(u, s);
	for (int d = 0; d < KERF_DEVICES; d++) {
		atomic_store(&s->waiting[d], 0);
		/* In one step: the agent may just take over what waits. */
		atomic_fetch_sub(&u->total[d].bytes, atomic_exchange(&s->held[d], 0));
	}
	atomic_fetch_add(&s->ended, 1);
}

/* The slot's owner, where that is a process of this pid namespace that is gone; else 0. It knows
 * that a pid is gone only in its own namespace. */
static uint64_t dead(const struct kerf_slot *s, uint64_t me, uint64_t here)
{
	uint64_t who = atomic_load(&s->owner);
	if (!who || who == me || atomic_load(&s->space) != here)
		return 0;
	int before = errno;
	bool gone = kill((pid_t)(who & PID_MASK), 0) < 0 && errno == ESRCH;
	errno = before;
	return gone ? who : 0;
}

/* Whether a process of this pid namespace counts here. */
static bool counts(int pid, uint64_t here)
{
	struct kerf_usage *u = usage;
	for (int i = 0; i < KERF_SLOTS; i++) {
		uint64_t who = atomic_load(&u->slot[i].owner);
		if (who && (int)(who & PID_MASK) == pid && atomic_load(&u->slot[i].space) == here)
			return true;
	}
	return false;
}

/* Waits for the agent, which knows what the driver holds, to free slots of the dead or to count what they held in
 * another way. For each of the dead that is waited for once. */
static bool agent_buries(struct kerf_usage *u, uint64_t me, uint64_t here)
{
	static uint64_t waited[KERF_SLOTS]; /* the owner that was waited for; guarded by burying */
	const struct timespec pause = { .tv_nsec = AGENT_PAUSE };
	bool fresh = false, any = false;
	uint64_t was[KERF_SLOTS];
	for (int i = 0; i < KERF_SLOTS; i++) {
		was[i] = dead(&u->slot[i], me, here);
		fresh = fresh || (was[i] && was[i] != waited[i]);
		waited[i] = was[i];
	}
	for (int waits = 0; fresh && !any && waits < AGENT_WAITS; waits++) {
		nanosleep(&pause, NULL);
		for (int i = 0; i < KERF_SLOTS; i++)
			any = any || (was[i] && atomic_load(&u->slot[i].owner) != was[i]);
	}
	return any;
}

/* Frees the slots of processes that are gone, as the agent does: it may come too late for who waits for the memory of
 * the one before. Where another process may keep what they held, that is for the agent to find out. Each slot is made
 * this process's own first, so that it is not lost if this one dies too. */
static bool bury(struct kerf_usage *u, uint64_t me, uint64_t here)
{
	static atomic_bool burying;
	const struct timespec pause = { .tv_nsec = AGENT_PAUSE };
	bool any = false, some = false;
	for (int i = 0; i < KERF_SLOTS && here && !some; i++)
		some = dead(&u->slot[i], me, here) != 0;
	if (!some)
		return false;
	if (atomic_exchange(&burying, true)) { /* another thread is at it */
		for (int waits = 0; waits < 2 * AGENT_WAITS && atomic_load(&burying); waits++)
			nanosleep(&pause, NULL);
		return true;
	}
	if (kerf_may_keep(counts, here))
		any = agent_buries(u, me, here);
	else
		for (int i = 0; i < KERF_SLOTS; i++) {
			struct kerf_slot *s = &u->slot[i];
			uint64_t who = dead(s, me, here);
			if (!who || !atomic_compare_exchange_strong(&s->owner, &who, me))
				continue;
			give_all(u, s);
			atomic_store(&s->space, 0);
			atomic_store(&s->owner, 0);
			any = true;
		}
	atomic_store(&burying, false);
	return any;
}

static struct kerf_slot *find_slot(struct kerf_usage *u, uint64_t me)
{
	uint64_t now = image(), here = space();
	struct kerf_slot *s = NULL;
	for (int i = 0; i < KERF_SLOTS && !s; i++) {
		/* A namesake in another container that shares the cap is another process. */
		uint64_t there = atomic_load(&u->slot[i].space);
		if (atomic_load(&u->slot[i].owner) == me && (!there || !here || there == here))
			s = &u->slot[i];
	}
	if (s && atomic_load(&s->spare) != now)
		give_all(u, s);
	if (!s)
		s = kerf_claim(u, me);
	if (!s && bury(u, me, here))
		s = kerf_claim(u, me);
	if (s) {
		atomic_store(&s->spare, now);
		atomic_store(&s->space, here);
	}
	return s;
}

static struct kerf_slot *slot(void)
{
	struct kerf_self *self = kerf_self();
	if (!self || !mapped())
		return NULL;
	struct kerf_slot *s = atomic_load_explicit(&self->slot, memory_order_acquire);
	if (s)
		return s;
	pthread_mutex_lock(&self->registering);
	s = atomic_load(&self->slot);
	uint64_t me = s ? 0 : owner();
	if (me)
		s = find_slot(usage, me);
	atomic_store_explicit(&self->slot, s, memory_order_release);
	pthread_mutex_unlock(&self->registering);
	if (!s)
		complain(me ? "more processes than can be counted" : "/proc/self/stat cannot be read");
	return s;
}

void kerf_register(void)
{
	slot();
}

int kerf_find(const unsigned char uuid[16])
{
	if (!mapped())
		return KERF_NO_PLACE;
	/* A region of a shared MIG instance names none: its UUID is another one whenever it is made, and the program has no
	 * other device. */
	unsigned char any[16];
	memset(any, 0xff, sizeof any);
	const struct kerf_limits *l = limits;
	for (int d = 0; d < (int)l->devices; d++)
		if (memcmp(l->device[d].uuid, uuid, 16) == 0 || memcmp(l->device[d].uuid, any, 16) == 0)
			return d;
	return KERF_NO_PLACE;
}

/* While the agent moves bytes from the counters to the overhead they count twice, and no call is rejected for that.
 * An agent that dies meanwhile delays no call for long. */
static bool reserve(struct kerf_slot *s, int place, uint64_t bytes)
{
	const struct timespec pause = { .tv_nsec = MOVE_PAUSE };
	struct kerf_limits *l = limits;
	for (int waits = 0;; waits++) {
		uint64_t before = atomic_load(&l->device[place].moves);
		if (kerf_reserve(l, usage, s, place, bytes))
			return true;
		if ((before % 2 == 0 && atomic_load(&l->device[place].moves) == before) || waits == MOST_WAITS)
			return false;
		nanosleep(&pause, NULL);
	}
}

bool kerf_take(int place, uint64_t bytes)
{
	int device = KERF_DEVICE(place);
	struct kerf_slot *s = place == KERF_NO_PLACE ? NULL : slot();
	if (!s || (!reserve(s, device, bytes) &&
		   !(bury(usage, atomic_load(&s->owner), atomic_load(&s->space)) && reserve(s, device, bytes))))
		return false;
	if (place != device)
		kerf_are_managed(usage, s, device, (int64_t)bytes);
	return true;
}

void kerf_refused(int place)
{
	if (place != KERF_NO_PLACE && mapped())
		atomic_fetch_add_explicit(&((struct kerf_usage *)usage)->total[KERF_DEVICE(place)].refused, 1,
			memory_order_relaxed);
}

void kerf_rejected(void)
{
	if (mapped())
		atomic_fetch_add_explicit(&((struct kerf_usage *)usage)->rejected, 1, memory_order_relaxed);
}

void kerf_give(int place, uint64_t bytes)
{
	struct kerf_slot *s = place == KERF_NO_PLACE || !bytes ? NULL : slot();
	if (s && place != KERF_DEVICE(place))
		kerf_are_managed(usage, s, KERF_DEVICE(place), -(int64_t)bytes);
	if (s)
		kerf_return(usage, s, KERF_DEVICE(place), bytes);
}

void kerf_force(int place, uint64_t bytes)
{
	struct kerf_slot *s = place == KERF_NO_PLACE || !bytes ? NULL : slot();
	struct kerf_usage *u = usage;
	if (!s)
		return;
	int device = KERF_DEVICE(place);
	atomic_fetch_add(&s->begun, 1);
	atomic_fetch_add(&u->total[device].bytes, bytes);
	atomic_fetch_add(&s->held[device], bytes);
	atomic_fetch_add(&s->ended, 1);
	if (place != device)
		kerf_are_managed(u, s, device, (int64_t)bytes);
}

uint64_t kerf_context_size(int place)
{
	if (place == KERF_NO_PLACE || !mapped())
		return 0;
	return atomic_load(&((struct kerf_limits *)limits)->device[place].context);
}

uint64_t kerf_context_bound(int place)
{
	if (kerf_context_size(place) != KERF_UNKNOWN)
		return 0;
	return atomic_load(&((struct kerf_limits *)limits)->bound[place]);
}

uint64_t kerf_context_least(int place)
{
	return place == KERF_NO_PLACE || !mapped() ? 0 : atomic_load(&((struct kerf_limits *)limits)->least[place]);
}

void kerf_making(bool begins)
{
	struct kerf_slot *s = slot();
	if (!s)
		return;
	if (begins)
		atomic_fetch_add(&s->making, 1);
	atomic_fetch_add(&s->begun, 1); /* so that no reading from before or meanwhile is taken for one after */
	atomic_fetch_add(&s->ended, 1);
	if (!begins)
		atomic_fetch_sub(&s->making, 1);
}

void kerf_hand_over(int place, uint64_t bytes)
{
	struct kerf_slot *s = place == KERF_NO_PLACE || !bytes ? NULL : slot();
	if (s)
		atomic_fetch_add(&s->waiting[place], bytes);
}

/* Nothing is counted by looking, so that it disturbs no reading of the agent's. */
uint64_t kerf_take_rest(int place, uint64_t least)
{
	struct kerf_slot *s = place == KERF_NO_PLACE ? NULL : slot();
	if (!s || (kerf_left(limits, usage, place) < least && !bury(usage, atomic_load(&s->owner), atomic_load(&s->space))))
		return 0;
	return kerf_reserve_rest(limits, usage, s, place, least);
}

uint64_t kerf_left_of(int place)
{
	return place == KERF_NO_PLACE || !mapped() ? 0 : kerf_left(limits, usage, place);
}

uint64_t kerf_moves(int place)
{
	return place == KERF_NO_PLACE || !mapped() ? 0 : atomic_load(&((struct kerf_limits *)limits)->device[place].moves);
}

bool kerf_waits(int place)
{
	const struct kerf_self *self = kerf_self();
	struct kerf_slot *s = self ? self->slot : NULL;
	return s && atomic_load(&s->waiting[place]);
}

bool kerf_anybody_waits(int place)
{
	const struct kerf_usage *u = mapped() ? usage : NULL;
	for (int i = 0; u && i < KERF_SLOTS; i++)
		if (atomic_load(&u->slot[i].owner) && atomic_load(&u->slot[i].waiting[place]))
			return true;
	return false;
}

bool kerf_anybody_makes(void)
{
	const struct kerf_usage *u = mapped() ? usage : NULL;
	for (int i = 0; u && i < KERF_SLOTS; i++)
		if (atomic_load(&u->slot[i].owner) && atomic_load(&u->slot[i].making))
			return true;
	return false;
}

void kerf_wait_with(int place, uint64_t bytes, uint64_t less)
{
	struct kerf_slot *s = slot();
	uint64_t now = s && less < bytes ? atomic_load(&s->waiting[place]) : 0;
	while (now >= bytes) /* else the agent has taken it over just now */
		if (atomic_compare_exchange_weak(&s->waiting[place], &now, now - bytes + less)) {
			kerf_return(usage, s, place, bytes - less);
			return;
		}
}

bool kerf_over(int place)
{
	const struct kerf_limit *l = &((const struct kerf_limits *)limits)->device[place];
	uint64_t limit = atomic_load(&l->limit), over = atomic_load(&l->overhead);
	return over > limit || atomic_load(&((struct kerf_usage *)usage)->total[place].bytes) > limit - over;
}

struct kerf_total *kerf_account(int place, uint64_t *percent)
{
	if (place == KERF_NO_PLACE || !mapped())
		return NULL;
	*percent = atomic_load_explicit(&((struct kerf_limits *)limits)->percent[place], memory_order_relaxed);
	return &((struct kerf_usage *)usage)->total[place];
}

bool kerf_rejects_managed(void)
{
	return mapped() && atomic_load_explicit(&((struct kerf_limits *)limits)->rejects_managed, memory_order_relaxed);
}

void kerf_size(int place, uint64_t *limit, uint64_t *used)
{
	*limit = *used = 0;
	if (place == KERF_NO_PLACE || !mapped())
		return;
	const struct kerf_limits *l = limits;
	const struct kerf_self *self = kerf_self();
	struct kerf_slot *s = self ? self->slot : NULL;
	if (s)
		bury(usage, atomic_load(&s->owner), atomic_load(&s->space));
	uint64_t booked = atomic_load(&((struct kerf_usage *)usage)->total[place].bytes);
	uint64_t over = atomic_load(&l->device[place].overhead);
	*limit = atomic_load(&l->device[place].limit);
	*used = over > UINT64_MAX - booked ? UINT64_MAX : booked + over;
	*used = *used > *limit ? *limit : *used;
}
