/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * evade COUNTED BYTES STEP: allocates COUNTED bytes as programs do, which libkerf counts, then BYTES in steps by the
 * driver's own function, whose address it reads from the symbol table of the loaded library. It prints what it got and
 * stays until it is ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wanted {
	const char *library, *name;
	void *address;
};

/* Looks at the tables of one loaded library. Its symbols lie between the symbol table and the string table. */
static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct wanted *w = data;
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	(void)size;
	if (!strstr(info->dlpi_name, w->library))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		for (const ElfW(Dyn) *d = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++) {
			uintptr_t at = d->d_un.d_ptr;
			if (at < info->dlpi_addr) /* not relocated by this loader */
				at += info->dlpi_addr;
			if (d->d_tag == DT_SYMTAB)
				symbols = (void *)at;
			if (d->d_tag == DT_STRTAB)
				names = (void *)at;
		}
	}
	if (!symbols || !names)
		return 0;
	for (const ElfW(Sym) *s = symbols; (const char *)s < names; s++)
		if (s->st_value && !strcmp(names + s->st_name, w->name)) {
			w->address = (void *)(info->dlpi_addr + s->st_value);
			return 1;
		}
	return 0;
}

int main(int argc, char **argv)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	struct wanted own = { .library = "libcuda.so", .name = "cuMemAlloc_v2" };
	if (argc != 4 || !cuda || !dl_iterate_phdr(look, &own) || !own.address)
		return 2;
	int (*init)(unsigned) = dlsym(cuda, "cuInit");
	int (*create)(void **, unsigned, int) = dlsym(cuda, "cuCtxCreate_v2");
	int (*counted)(uint64_t *, size_t) = dlsym(cuda, "cuMemAlloc_v2");
	int (*uncounted)(uint64_t *, size_t) = own.address;
	size_t got = 0, want = strtoull(argv[2], NULL, 10), step = strtoull(argv[3], NULL, 10);
	uint64_t pointer;
	void *context;
	if (counted == uncounted || init(0) || create(&context, 0, 0) || counted(&pointer, strtoull(argv[1], NULL, 10)))
		return 3;
	while (got < want && !uncounted(&pointer, step))
		got += step;
	printf("%zu\n", got);
	fflush(stdout);
	for (;;)
		pause();
}
