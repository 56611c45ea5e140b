/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that is opened with RTLD_DEEPBIND looks into its own dependencies before the program's: for dlsym it gets
 * the C library's, for a function of the driver, if it is linked against it, the driver's own. To drop the flag would
 * correct that, and break a caller with two libraries of the same names. So the flag stays, and when the
 * library is there, those of its imports that ended past this library are led here. What its constructors do before is
 * missed.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kerf.h"

#if defined __x86_64__
#define IS_JUMP(type) ((type) == R_X86_64_JUMP_SLOT)
#define IS_ADDRESS(type) ((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined __aarch64__
#define IS_JUMP(type) ((type) == R_AARCH64_JUMP_SLOT)
#define IS_ADDRESS(type) ((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_JUMP(type) false
#define IS_ADDRESS(type) false
#endif

struct object {
	const struct dl_phdr_info *info;
	bool young; /* it came with what was opened, or later */
	const ElfW(Sym) *symbols;
	const char *strings;
	const ElfW(Rela) *list[2];
	size_t bytes[2];
};

/* Another thread's dlopen may still be at work on the object. It makes pages read-only when it has done with them, so
 * what can be written is written, and no page that was not read-only is ever made so. Which it is, the kernel is asked:
 * it puts back what is there. */
enum page { OPEN, CLOSED, NOT_KNOWN };

static enum page page_of(void **slot, void *there)
{
	int ends[2];
	enum page page = NOT_KNOWN;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return NOT_KNOWN;
	if (write(ends[1], &there, sizeof there) == (ssize_t)sizeof there) {
		ssize_t n = read(ends[0], slot, sizeof there);
		page = n == (ssize_t)sizeof there ? OPEN : n < 0 && errno == EFAULT ? CLOSED : NOT_KNOWN;
	}
	close(ends[0]);
	close(ends[1]);
	return page;
}

static void set(void **slot, void *there, void *to)
{
	const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *start = (void *)((uintptr_t)slot / size * size);
	enum page page = page_of(slot, there);
	if (page == NOT_KNOWN || (page == CLOSED && mprotect(start, size, PROT_READ | PROT_WRITE) != 0))
		return;
	__atomic_store_n(slot, to, __ATOMIC_RELEASE);
	if (page == CLOSED)
		mprotect(start, size, PROT_READ);
}

static void lead(const struct object *o, const ElfW(Rela) *r)
{
	const unsigned type = (unsigned)ELF64_R_TYPE(r->r_info);
	const ElfW(Sym) *s = o->symbols + ELF64_R_SYM(r->r_info);
	if (!(IS_JUMP(type) || (IS_ADDRESS(type) && r->r_addend == 0)) || s->st_shndx != SHN_UNDEF)
		return;
	void **slot = (void **)(o->info->dlpi_addr + r->r_offset), *there = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
	/* A function that was not called yet has its slot lead to a stub of the object's own. */
	bool bound = !(IS_JUMP(type) && kerf_within(o->info, there));
	if (bound && !there)
		return; /* a weak one that no library has, or one that is not bound yet */
	if (!bound && !o->young)
		return; /* it will be bound in the usual order, in which another preloaded library may come first */
	void *to = kerf_instead(o->strings + s->st_name, bound ? there : NULL);
	if (to && to != there)
		set(slot, there, to);
}

struct walk {
	size_t at, from;
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	struct walk *w = data;
	struct object o = { .info = info, .young = w->at++ >= w->from };
	size_t plain = 0;
	const ElfW(Dyn) *d = NULL;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (!d || kerf_within(info, (const void *)(uintptr_t)kerf_lead))
		return 0;
	for (; d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB: o.symbols = kerf_at(info, d->d_un.d_ptr); break;
		case DT_STRTAB: o.strings = kerf_at(info, d->d_un.d_ptr); break;
		case DT_RELA: o.list[0] = kerf_at(info, d->d_un.d_ptr); break;
		case DT_RELASZ: o.bytes[0] = d->d_un.d_val; break;
		case DT_RELACOUNT: plain = d->d_un.d_val; break;
		case DT_JMPREL: o.list[1] = kerf_at(info, d->d_un.d_ptr); break;
		case DT_PLTRELSZ: o.bytes[1] = d->d_un.d_val; break;
		case DT_PLTREL: if (d->d_un.d_val != DT_RELA) return 0; break;
		default: break;
		}
	for (int k = 0; k < 2 && o.symbols && o.strings; k++) /* the first of a list have no symbol */
		for (size_t i = k ? 0 : plain; o.list[k] && i < o.bytes[k] / sizeof *o.list[k]; i++)
			lead(&o, &o.list[k][i]);
	return 0;
}

static int count(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)info;
	(void)size;
	++*(size_t *)data;
	return 0;
}

size_t kerf_objects(void)
{
	size_t n = 0;
	kerf_iterate(count, &n);
	return n;
}

void kerf_lead(size_t from)
{
	kerf_load(); /* no library is opened within: another thread's dlopen may wait for the list of objects */
	kerf_iterate(look, &(struct walk){ 0, from });
}
