/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management: physical memory (a handle), address ranges, and mappings of the one into the
 * other. Physical memory goes back to the GPU when its handle is released and nothing maps it, whichever is
 * later. Addresses are the library's own affair; only physical memory is the daemon's.
 */
#include "cuda_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Reservations lie where neither the daemon's addresses of linear memory nor the host's are. */
#define VA_FIRST (UINT64_C(1) << 45)
#define VA_END (UINT64_C(1) << 46)

struct physical {
	CUmemGenericAllocationHandle handle;
	uint64_t bytes;
	CUdevice device;
	unsigned refs; /* held by the program: cuMemCreate and cuMemRetainAllocationHandle less cuMemRelease */
	unsigned maps;
	bool shareable; /* made for other processes to import */
	bool tiles;	/* made for sparse arrays */
	struct team *team; /* a multicast object, which has no own memory here; NULL: none */
	struct physical *next;
};

struct range {
	CUdeviceptr ptr;
	uint64_t bytes;
	struct physical *physical; /* of a mapping */
	bool accessible;
	struct range *next;
};

/* All guarded by cuda_mu; the ranges in ascending order. */
static struct physical *physicals;
static struct range *reservations, *mappings;
static uint64_t teams; /* how many have been made */

/* Handles of multicast objects: the daemon gives no such numbers. */
#define TEAM_FIRST (UINT64_C(1) << 62)

static bool aligned(uint64_t n)
{
	return n % GRANULARITY == 0;
}

/* Does [ptr, ptr+bytes) lie in the range? */
static bool within(const struct range *r, CUdeviceptr ptr, uint64_t bytes)
{
	return ptr >= r->ptr && bytes <= r->bytes && ptr - r->ptr <= r->bytes - bytes;
}

static bool overlaps(const struct range *r, CUdeviceptr ptr, uint64_t bytes)
{
	return ptr < r->ptr + r->bytes && r->ptr < ptr + bytes;
}

static void insert(struct range **list, struct range *r)
{
	while (*list && (*list)->ptr < r->ptr)
		list = &(*list)->next;
	r->next = *list;
	*list = r;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	struct device *d;
	NEED(prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED);
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED; /* neither host memory nor other handles than files */
	return cuda_device(prop->location.id, &d);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option)
{
	TRY(cuda_enter());
	NEED(granularity && (option == 0 || option == 1));
	TRY(check_prop(prop));
	*granularity = GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	uint64_t id, args[GPUSIM_NARGS] = { bytes, 0, GPUSIM_KIND_VMM };
	TRY(cuda_enter());
	NEED(handle && bytes && aligned(bytes) && flags == 0);
	TRY(check_prop(prop));
	struct physical *p = calloc(1, sizeof *p);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = cuda_call(prop->location.id, GPUSIM_OP_ALLOC, args, &id, 1);
	if (ret) {
		free(p);
		return ret;
	}
	*p = (struct physical){ .handle = id, .bytes = bytes, .device = prop->location.id, .refs = 1,
				.shareable = prop->requestedHandleTypes != 0,
				.tiles = prop->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL };
	pthread_mutex_lock(&cuda_mu);
	p->next = physicals;
	physicals = p;
	pthread_mutex_unlock(&cuda_mu);
	*handle = id;
	return CUDA_SUCCESS;
}

/* With cuda_mu held: takes p out when nothing holds it any more, and says so: the caller gives it back. */
static bool unlink_unused(struct physical *p)
{
	if (p->refs || p->maps)
		return false;
	struct physical **at = &physicals;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	return true;
}

static CUresult give_back(struct physical *p)
{
	uint64_t args[GPUSIM_NARGS] = { p->handle };
	if (p->team)
		cuda_team_end(p->team);
	CUresult ret = p->team ? CUDA_SUCCESS : cuda_call(p->device, GPUSIM_OP_FREE, args, NULL, 0);
	free(p);
	return ret;
}

/* With cuda_mu held: the memory behind a handle that the program holds. */
static struct physical *held(CUmemGenericAllocationHandle handle)
{
	for (struct physical *p = physicals; p; p = p->next)
		if (p->handle == handle && p->refs)
			return p;
	return NULL;
}

CUresult cuda_physical_of(struct team *team, uint64_t bytes, CUmemGenericAllocationHandle *handle)
{
	struct physical *p = calloc(1, sizeof *p);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&cuda_mu);
	*p = (struct physical){ .handle = TEAM_FIRST + teams++, .bytes = bytes, .refs = 1, .team = team,
		.next = physicals };
	physicals = p;
	*handle = p->handle;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

struct team *cuda_team(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&cuda_mu);
	const struct physical *p = held(handle);
	struct team *t = p ? p->team : NULL;
	pthread_mutex_unlock(&cuda_mu);
	return t;
}

bool cuda_has_tiles(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&cuda_mu);
	const struct physical *p = held(handle);
	bool tiles = p && p->tiles;
	pthread_mutex_unlock(&cuda_mu);
	return tiles;
}

CUdevice cuda_physical_device(const struct physical *p)
{
	return p->device; /* it does not change */
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	TRY(cuda_enter());
	pthread_mutex_lock(&cuda_mu);
	struct physical *p = held(handle);
	if (p)
		p->refs--;
	bool unused = p && unlink_unused(p);
	pthread_mutex_unlock(&cuda_mu);
	NEED(p);
	return unused ? give_back(p) : CUDA_SUCCESS;
}

/* How a file is called that stands for physical memory: of which GPU and process, by which handle, and a number of its
 * own. */
#define SHARED_MEMORY "gpusim memory %d %d %llx %llx"

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
				      unsigned long long flags)
{
	struct device *d;
	TRY(cuda_enter());
	NEED(out && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	pthread_mutex_lock(&cuda_mu);
	const struct physical *p = held(handle);
	bool ok = p && p->shareable;
	CUdevice device = ok ? p->device : 0;
	pthread_mutex_unlock(&cuda_mu);
	NEED(ok);
	TRY(cuda_device(device, &d));
	char name[96];
	int fd;
	snprintf(name, sizeof name, SHARED_MEMORY, d->minor, (int)getpid(), (unsigned long long)handle,
		 (unsigned long long)cuda_now());
	TRY(cuda_status(gpusim_export(d->minor, handle, name, &fd)));
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

/* One more reference to memory that this process has already, its own or imported; false: it has not. */
static bool again(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&cuda_mu);
	struct physical *p = physicals;
	while (p && p->handle != handle)
		p = p->next;
	if (p)
		p->refs++;
	pthread_mutex_unlock(&cuda_mu);
	return p;
}

/* Charged to who made it. Memory lives until the last process has released it, and the last file that stands for it is
 * closed (cuMemRelease: "when all outstanding references to the handle (including it's shareable counterparts) are also
 * released"). What NVML tells of it is in model/share.go. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from, int type)
{
	struct device *list;
	char name[96];
	int minor, pid;
	unsigned long long shared, number;
	uint64_t bytes;
	TRY(cuda_enter());
	NEED(handle && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	NEED(gpusim_exported((int)(intptr_t)from, name, sizeof name));
	NEED(sscanf(name, SHARED_MEMORY, &minor, &pid, &shared, &number) == 4);
	int device = cuda_devices(&list) - 1;
	while (device >= 0 && list[device].minor != minor)
		device--;
	if (device < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*handle = shared;
	if (again(shared))
		return CUDA_SUCCESS;
	struct physical *p = malloc(sizeof *p);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const uint64_t args[GPUSIM_NARGS] = { shared };
	CUresult ret = cuda_call(device, GPUSIM_OP_IMPORT, args, &bytes, 1);
	if (ret) {
		free(p);
		return ret;
	}
	*p = (struct physical){ .handle = shared, .bytes = bytes, .device = device, .refs = 1, .shareable = true,
				.tiles = true }; /* how it was made is not known */
	pthread_mutex_lock(&cuda_mu);
	p->next = physicals;
	physicals = p;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	TRY(cuda_enter());
	NEED(handle);
	CUresult ret = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&cuda_mu);
	for (struct range *m = mappings; m; m = m->next)
		if (within(m, (CUdeviceptr)(uintptr_t)addr, 1)) {
			m->physical->refs++;
			*handle = m->physical->handle;
			ret = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&cuda_mu);
	return ret;
}

/* With cuda_mu held: the lowest free place, or 0. */
static CUdeviceptr find_room(uint64_t bytes, uint64_t alignment)
{
	uint64_t at = VA_FIRST;
	for (const struct range *r = reservations;; r = r->next) {
		uint64_t end = r ? r->ptr : VA_END;
		at = (at + alignment - 1) / alignment * alignment;
		if (at < end && end - at >= bytes)
			return at;
		if (!r)
			return 0;
		at = r->ptr + r->bytes;
	}
}

/* With cuda_mu held: can the program have the address that it wishes for? */
static bool is_room(CUdeviceptr addr, uint64_t bytes, uint64_t alignment)
{
	if (addr < VA_FIRST || addr % alignment || addr > VA_END || VA_END - addr < bytes)
		return false;
	for (const struct range *r = reservations; r; r = r->next)
		if (overlaps(r, addr, bytes))
			return false;
	return true;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	TRY(cuda_enter());
	NEED(ptr && bytes && aligned(bytes) && flags == 0);
	NEED((alignment & (alignment - 1)) == 0);
	if (bytes > VA_END - VA_FIRST || alignment > VA_FIRST)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (alignment < GRANULARITY)
		alignment = GRANULARITY;
	struct range *r = calloc(1, sizeof *r);
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&cuda_mu);
	r->bytes = bytes;
	r->ptr = is_room(addr, bytes, alignment) ? addr : find_room(bytes, alignment);
	if (r->ptr)
		insert(&reservations, r);
	pthread_mutex_unlock(&cuda_mu);
	if (!r->ptr) {
		free(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ptr = r->ptr;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	TRY(cuda_enter());
	struct range **at = &reservations, *r = NULL;
	pthread_mutex_lock(&cuda_mu);
	while (*at && ((*at)->ptr != ptr || (*at)->bytes != bytes))
		at = &(*at)->next;
	bool mapped = false;
	for (const struct range *m = mappings; m; m = m->next)
		mapped |= overlaps(m, ptr, bytes);
	if (*at && !mapped) {
		r = *at;
		*at = r->next;
	}
	pthread_mutex_unlock(&cuda_mu);
	NEED(r);
	free(r);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	TRY(cuda_enter());
	NEED(bytes && aligned(ptr) && aligned(bytes) && offset == 0 && flags == 0);
	struct range *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&cuda_mu);
	struct physical *p = held(handle);
	bool ok = false;
	for (const struct range *r = reservations; r; r = r->next)
		ok |= within(r, ptr, bytes);
	for (const struct range *other = mappings; other; other = other->next)
		ok &= !overlaps(other, ptr, bytes);
	ok &= p && bytes <= p->bytes && (!p->team || cuda_team_ready(p->team));
	if (ok) {
		*m = (struct range){ .ptr = ptr, .bytes = bytes, .physical = p };
		p->maps++;
		insert(&mappings, m);
	}
	pthread_mutex_unlock(&cuda_mu);
	if (!ok)
		free(m);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With cuda_mu held: do whole mappings make up [ptr, ptr+bytes) without a gap? */
static bool tiled(CUdeviceptr ptr, uint64_t bytes)
{
	for (const struct range *m = mappings; m && bytes; m = m->next) {
		if (m->ptr < ptr)
			continue;
		if (m->ptr != ptr || m->bytes > bytes)
			return false;
		ptr += m->bytes;
		bytes -= m->bytes;
	}
	return bytes == 0;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	struct physical *unused = NULL;
	CUresult ret = CUDA_SUCCESS;
	TRY(cuda_enter());
	NEED(bytes && aligned(ptr) && aligned(bytes));
	pthread_mutex_lock(&cuda_mu);
	bool ok = tiled(ptr, bytes);
	for (struct range **at = &mappings; ok && *at;) {
		struct range *m = *at;
		if (!within(&(struct range){ .ptr = ptr, .bytes = bytes }, m->ptr, m->bytes)) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		m->physical->maps--;
		if (unlink_unused(m->physical)) {
			m->physical->next = unused;
			unused = m->physical;
		}
		free(m);
	}
	pthread_mutex_unlock(&cuda_mu);
	while (unused) {
		struct physical *next = unused->next;
		CUresult gave = give_back(unused);
		if (gave)
			ret = gave;
		unused = next;
	}
	return ok ? ret : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	struct device *d;
	bool accessible = false;
	TRY(cuda_enter());
	NEED(bytes && desc && count && aligned(ptr) && aligned(bytes));
	for (size_t i = 0; i < count; i++) {
		NEED(desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && desc[i].flags >= 0);
		NEED(desc[i].flags <= CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		TRY(cuda_device(desc[i].location.id, &d));
		accessible |= desc[i].flags != 0;
	}
	pthread_mutex_lock(&cuda_mu);
	bool ok = tiled(ptr, bytes);
	for (struct range *m = mappings; ok && m; m = m->next)
		if (overlaps(m, ptr, bytes))
			m->accessible = accessible;
	pthread_mutex_unlock(&cuda_mu);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_hold(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes, struct physical **out)
{
	pthread_mutex_lock(&cuda_mu);
	struct physical *p = held(handle);
	bool ok = p && !p->team && offset <= p->bytes && bytes <= p->bytes - offset;
	if (ok)
		p->maps++;
	pthread_mutex_unlock(&cuda_mu);
	*out = p;
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_hold_mapped(CUdeviceptr ptr, uint64_t bytes, struct physical **out)
{
	CUresult ret = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&cuda_mu);
	for (const struct range *m = mappings; m && ret; m = m->next)
		if (within(m, ptr, bytes) && !m->physical->team) {
			m->physical->maps++;
			*out = m->physical;
			ret = CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&cuda_mu);
	return ret;
}

void cuda_hold_again(struct physical *p)
{
	pthread_mutex_lock(&cuda_mu);
	p->maps++;
	pthread_mutex_unlock(&cuda_mu);
}

CUresult cuda_let_go(struct physical *p)
{
	pthread_mutex_lock(&cuda_mu);
	p->maps--;
	bool unused = unlink_unused(p);
	pthread_mutex_unlock(&cuda_mu);
	return unused ? give_back(p) : CUDA_SUCCESS;
}

bool cuda_mapped(CUdeviceptr ptr, size_t bytes)
{
	pthread_mutex_lock(&cuda_mu);
	for (const struct range *m = mappings; m && bytes; m = m->next) {
		if (!within(m, ptr, 1))
			continue;
		if (!m->accessible)
			break;
		uint64_t here = m->bytes - (ptr - m->ptr); /* a stretch may go on in the next mapping */
		if (here > bytes)
			here = bytes;
		ptr += here;
		bytes -= here;
	}
	pthread_mutex_unlock(&cuda_mu);
	return bytes == 0;
}
