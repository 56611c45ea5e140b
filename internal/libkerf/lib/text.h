/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Text, without the C library's functions: dlsym also serves the start of programs in which a sanitizer stands in front
 * of those functions and is not ready yet.
 */
#ifndef KERF_TEXT_H
#define KERF_TEXT_H

#include <stdbool.h>
#include <stddef.h>

static inline bool kerf_same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static inline bool kerf_begins(const char *text, const char *with)
{
	while (*with && *text == *with) {
		text++;
		with++;
	}
	return !*with;
}

/* The last c in text; NULL: there is none. */
static inline const char *kerf_last(const char *text, char c)
{
	const char *last = NULL;
	for (; *text; text++)
		if (*text == c)
			last = text;
	return last;
}

static inline bool kerf_has(const char *text, char c)
{
	return kerf_last(text, c) != NULL;
}

/* The file name of a path. */
static inline const char *kerf_name(const char *path)
{
	const char *slash = kerf_last(path, '/');
	return slash ? slash + 1 : path;
}

#endif
