/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For the programs that test the libraries from outside: symbols by name, and checks that end the program.
 */
#ifndef GPUSIM_CHECK_H
#define GPUSIM_CHECK_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;

static void load(const char *name)
{
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
}

static void *symbol(const char *name)
{
	void *s = dlsym(library, name);
	if (!s) {
		fprintf(stderr, "no symbol %s\n", name);
		exit(4);
	}
	return s;
}

/* CALL(f)(args): a function of the library, with the type that its declaration gives. */
#define CALL(f) ((__typeof__(f) *)symbol(#f))

#define EQ(got, want)                                                                                          \
	do {                                                                                                   \
		long long got_ = (long long)(got), want_ = (long long)(want);                                  \
		if (got_ != want_) {                                                                           \
			fprintf(stderr, "%s:%d: %s is %lld, want %lld\n", __FILE__, __LINE__, #got, got_, want_); \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

#endif
