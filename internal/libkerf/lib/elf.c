/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Looks into the loaded objects' own tables: this library exports dlsym and dlvsym, so that asking them by the
 * usual way would end in itself.
 */
#include <elf.h>
#include <link.h>
#include <string.h>

#include "kerf.h"

struct wanted {
	const char *name;
	void *found;
};

/* Some loaders relocate the addresses in the dynamic section, some do not. */
const void *kerf_at(const struct dl_phdr_info *info, uintptr_t where)
{
	return (const void *)(where < info->dlpi_addr ? where + info->dlpi_addr : where);
}

static void *look(const struct dl_phdr_info *info, const ElfW(Dyn) *dynamic, const char *name)
{
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	const uint32_t *table = NULL;
	for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			symbols = kerf_at(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			strings = kerf_at(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			table = kerf_at(info, d->d_un.d_ptr);
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
		    strcmp(strings + symbols[i].st_name, name) == 0)
			return (void *)(info->dlpi_addr + symbols[i].st_value);
		if (here & 1)
			break;
	}
	return NULL;
}

static int in_libc(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	struct wanted *w = data;
	const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
	if (strcmp(name, "libc.so.6") != 0 && strcmp(name, "libdl.so.2") != 0)
		return 0;
	for (int i = 0; i < info->dlpi_phnum && !w->found; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			w->found = look(info, (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), w->name);
	return w->found != NULL;
}

void *kerf_libc(const char *name)
{
	struct wanted w = { name, NULL };
	dl_iterate_phdr(in_libc, &w);
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
	const char *slash = strrchr(info->dlpi_name, '/');
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
	dl_iterate_phdr(own, &f);
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
	dl_iterate_phdr(either, &o);
	return o.before;
}
