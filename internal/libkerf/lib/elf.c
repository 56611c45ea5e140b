/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Looks into the loaded objects' own tables: this library exports dlsym and dlvsym, so that asking them by the
 * usual way would end in itself. What is here may run while the program's libraries are not ready yet: see text.h.
 */
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "kerf.h"
#include "text.h"

struct wanted {
	const char *name;
	void *found;
};

/* Some loaders relocate the addresses in the dynamic section, some do not. */
static const void *at(uintptr_t base, uintptr_t where)
{
	return (const void *)(where < base ? where + base : where);
}

const void *kerf_at(const struct dl_phdr_info *info, uintptr_t where)
{
	return at(info->dlpi_addr, where);
}

static void *look(uintptr_t base, const ElfW(Dyn) *dynamic, const char *name)
{
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	const uint32_t *table = NULL;
	for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			symbols = at(base, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			strings = at(base, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			table = at(base, d->d_un.d_ptr);
	}
	if (!symbols || !strings || !table || !table[0])
		return NULL;
	uint32_t hash = 5381;
	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	const uint32_t buckets = table[0], first = table[1], words = table[2];
	const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + words);
	const uint32_t *chain = bucket + buckets;
	for (uint32_t i = bucket[hash % buckets]; i >= first && i != 0; i++) {
		uint32_t here = chain[i - first];
		if ((here | 1) == (hash | 1) && symbols[i].st_shndx != SHN_UNDEF &&
		    kerf_same(strings + symbols[i].st_name, name))
			return (void *)(base + symbols[i].st_value);
		if (here & 1)
			break;
	}
	return NULL;
}

/* The C library, and what is part of it; musl's is the loader itself. */
static bool is_libc(const char *path)
{
	const char *name = kerf_name(path);
	return kerf_same(name, "libc.so.6") || kerf_same(name, "libdl.so.2") || kerf_same(name, "libc.so") ||
	       kerf_begins(name, "ld-musl-") || kerf_begins(name, "libc.musl-");
}

/* The loader's list of objects, as debuggers find it: the program's own dynamic section leads there. */
static const struct link_map *objects(void)
{
	const ElfW(Phdr) *p = (const void *)getauxval(AT_PHDR);
	const ElfW(Dyn) *d = NULL;
	size_t n = p ? getauxval(AT_PHNUM) : 0;
	uintptr_t base = 0;
	for (size_t i = 0; i < n; i++)
		if (p[i].p_type == PT_PHDR)
			base = (uintptr_t)p - p[i].p_vaddr;
	for (size_t i = 0; i < n; i++)
		if (p[i].p_type == PT_DYNAMIC)
			d = (const void *)(base + p[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_DEBUG && d->d_un.d_ptr)
			return ((const struct r_debug *)d->d_un.d_ptr)->r_map;
	return NULL;
}

typedef int (*iterate_fn)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

/* The C library's own dl_iterate_phdr: a program may have another one in front, which is not ready while it starts.
 * The C library is there from the start and for good, so the walk to it meets no object that another thread unloads. */
static iterate_fn iterate(void)
{
	static _Atomic(iterate_fn) own;
	iterate_fn now = atomic_load_explicit(&own, memory_order_relaxed);
	for (const struct link_map *o = now ? NULL : objects(); o && !now; o = o->l_next)
		if (o->l_name && is_libc(o->l_name))
			now = (iterate_fn)(uintptr_t)look(o->l_addr, o->l_ld, "dl_iterate_phdr");
	now = now ? now : dl_iterate_phdr;
	atomic_store_explicit(&own, now, memory_order_relaxed);
	return now;
}

int kerf_iterate(int (*each)(struct dl_phdr_info *, size_t, void *), void *data)
{
	return iterate()(each, data);
}

static int in_libc(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	struct wanted *w = data;
	if (!is_libc(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && !w->found; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			w->found = look(info->dlpi_addr, (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), w->name);
	return w->found != NULL;
}

void *kerf_libc(const char *name)
{
	struct wanted w = { name, NULL };
	kerf_iterate(in_libc, &w);
	return w.found;
}

bool kerf_within(const struct dl_phdr_info *info, const void *address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && (uintptr_t)address - info->dlpi_addr - p->p_vaddr < p->p_memsz)
			return true;
	}
	return false;
}

struct folder {
	char *path;
	size_t size;
	bool found;
};

static int own(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	struct folder *f = data;
	if (!kerf_within(info, (const void *)(uintptr_t)kerf_folder))
		return 0;
	const char *slash = kerf_last(info->dlpi_name, '/');
	size_t length = slash ? (size_t)(slash - info->dlpi_name) : 0;
	f->found = slash && length < f->size;
	if (f->found) {
		memcpy(f->path, info->dlpi_name, length);
		f->path[length] = 0;
	}
	return 1;
}

bool kerf_folder(char *path, size_t size)
{
	struct folder f = { path, size, false };
	kerf_iterate(own, &f);
	return f.found;
}

struct order {
	const void *one, *other;
	bool before;
};

static int either(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	struct order *o = data;
	o->before = kerf_within(info, o->one);
	return o->before || kerf_within(info, o->other);
}

bool kerf_comes_before(const void *one, const void *other)
{
	struct order o = { one, other, false };
	kerf_iterate(either, &o);
	return o.before;
}
