/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Images of modules: PTX, cubins, and fat binaries, which have several of both for different GPUs.
 */
#include "cuda_image.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define ALIGNMENT 256u
enum { KIND_PTX = 1, KIND_ELF = 2 };
enum { FLAG_LZ4 = 0x2000 };

struct wrapper {
	uint32_t magic, version;
	const void *data, *unused;
};
struct fatbin {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes; /* of all that follows */
};
struct part {
	uint16_t kind, version;
	uint32_t header;
	uint64_t bytes; /* of what follows, with padding */
	uint32_t packed, unused;
	uint16_t minor, major;
	uint32_t capability; /* 10 * major + minor of compute capability */
	uint32_t name_at, name_bytes;
	uint64_t flags, unused2, unpacked;
};
_Static_assert(sizeof(struct part) == 64, "the header of a part");

static CUresult add(struct image *image, const char *name, size_t length, bool function, uint64_t bytes)
{
	struct image_symbol *s = calloc(1, sizeof *s);
	if (s)
		s->name = strndup(name, length);
	if (!s || !s->name) {
		free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->function = function;
	s->offset = image->bytes;
	s->bytes = bytes;
	if (!function)
		image->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	s->next = image->first;
	image->first = s;
	return CUDA_SUCCESS;
}

void cuda_image_free(struct image *image)
{
	for (struct image_symbol *s = image->first, *next; s; s = next) {
		next = s->next;
		free(s->name);
		free(s);
	}
	image->first = NULL;
}

const struct image_symbol *cuda_image_find(const struct image *image, const char *name, bool function)
{
	const struct image_symbol *s = image->first;
	while (s && (s->function != function || strcmp(s->name, name) != 0))
		s = s->next;
	return s;
}

static bool of_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* ".visible .global .align 4 .b8 name[64] = ...;": what stands between the directive and the name are attributes and
 * the type. */
static CUresult ptx_variable(struct image *image, const char *p)
{
	unsigned long long bits = 0, n = 1;
	for (;;) {
		p += strspn(p, " \t\n");
		if (*p != '.' && !isdigit((unsigned char)*p))
			break;
		if (*p == '.' && strchr("bsuf", p[1]) && isdigit((unsigned char)p[2]))
			bits = strtoull(p + 2, NULL, 10);
		p += strcspn(p, " \t\n;");
	}
	const char *name = p;
	while (of_name(*p))
		p++;
	if (*p == '[')
		n = strtoull(p + 1, NULL, 10);
	return p > name && bits ? add(image, name, (size_t)(p - name), false, bits / 8 * n) : CUDA_SUCCESS;
}

/* In code the directive is a part of an instruction: "ld.global.u32". */
static CUresult ptx_variables(struct image *image, const char *text, const char *directive)
{
	size_t length = strlen(directive);
	for (const char *p = strstr(text, directive); p; p = strstr(p + length, directive))
		if ((p == text || isspace((unsigned char)p[-1])) && isspace((unsigned char)p[length]))
			TRY(ptx_variable(image, p + length));
	return CUDA_SUCCESS;
}

static CUresult read_ptx(struct image *image, const char *text)
{
	for (const char *p = strstr(text, ".entry"); p; p = strstr(p, ".entry")) {
		p += strlen(".entry");
		p += strspn(p, " \t\n");
		size_t n = 0;
		while (of_name(p[n]))
			n++;
		TRY(add(image, p, n, true, 0));
	}
	TRY(ptx_variables(image, text, ".global"));
	return ptx_variables(image, text, ".const");
}

static CUresult read_elf(struct image *image, const unsigned char *data)
{
	const Elf64_Ehdr *h = (const void *)data;
	const Elf64_Shdr *sections = (const void *)(data + h->e_shoff);
	const char *names = (const char *)data + sections[h->e_shstrndx].sh_offset;
	for (unsigned i = 0; i < h->e_shnum; i++) {
		if (sections[i].sh_type != SHT_SYMTAB)
			continue;
		const Elf64_Sym *symbols = (const void *)(data + sections[i].sh_offset);
		const char *strings = (const char *)data + sections[sections[i].sh_link].sh_offset;
		for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
			const Elf64_Sym *s = &symbols[k];
			if (!s->st_shndx || s->st_shndx >= h->e_shnum)
				continue;
			const char *section = names + sections[s->st_shndx].sh_name, *name = strings + s->st_name;
			bool function = ELF64_ST_TYPE(s->st_info) == STT_FUNC && strncmp(section, ".text.", 6) == 0;
			bool variable = ELF64_ST_TYPE(s->st_info) == STT_OBJECT &&
					(strncmp(section, ".nv.global", 10) == 0 || strncmp(section, ".nv.constant3", 13) == 0);
			if (function || variable)
				TRY(add(image, name, strlen(name), function, s->st_size));
		}
	}
	return CUDA_SUCCESS;
}

static CUresult read_plain(struct image *image, const void *data)
{
	if (memcmp(data, ELFMAG, SELFMAG) == 0)
		return read_elf(image, data);
	if (strncmp(data, ".version", 8) == 0 || strncmp(data, "//", 2) == 0 || isspace(*(const unsigned char *)data))
		return read_ptx(image, data);
	image->open = true;
	return CUDA_SUCCESS;
}

/* Code runs on its own major compute capability from its minor one on; PTX on all from its own on. */
static bool fits(const struct part *p, const struct device *d)
{
	uint64_t here = 10 * d->cc_major + d->cc_minor;
	return p->capability <= here && (p->kind == KIND_PTX || (p->kind == KIND_ELF && p->capability / 10 == d->cc_major));
}

static CUresult read_part(struct image *image, const struct part *p)
{
	const unsigned char *data = (const unsigned char *)p + p->header;
	size_t bytes = p->packed && p->flags & FLAG_LZ4 ? p->unpacked : p->bytes;
	unsigned char *copy = calloc(1, bytes + 1);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	bool ok = true;
	if (p->packed && p->flags & FLAG_LZ4)
		ok = cuda_lz4(copy, bytes, data, p->packed);
	else
		memcpy(copy, data, bytes);
	CUresult ret = ok ? read_plain(image, copy) : CUDA_ERROR_INVALID_IMAGE;
	free(copy);
	return ret;
}

static CUresult read_fatbin(struct image *image, const struct fatbin *f, const struct device *d)
{
	const struct part *best = NULL;
	const char *end = (const char *)f + f->header + f->bytes;
	for (const char *at = (const char *)f + f->header; at + sizeof *best <= end;) {
		const struct part *p = (const void *)at;
		/* Code before PTX, and what was made for a later GPU first. */
		if (fits(p, d) && (!best || p->kind > best->kind ||
			(p->kind == best->kind && p->capability > best->capability)))
			best = p;
		at += p->header + p->bytes;
	}
	return best ? read_part(image, best) : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult cuda_image_read(struct image *image, const void *data, const struct device *d)
{
	uint32_t magic;
	memcpy(&magic, data, sizeof magic);
	if (magic == WRAPPER_MAGIC) {
		data = ((const struct wrapper *)data)->data;
		memcpy(&magic, data, sizeof magic);
	}
	CUresult ret = magic == FATBIN_MAGIC ? read_fatbin(image, data, d) : read_plain(image, data);
	if (ret)
		cuda_image_free(image);
	return ret;
}
