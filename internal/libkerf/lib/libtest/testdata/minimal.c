/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program for any loader: it starts, and finds a function of its C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	void *self = dlopen(NULL, RTLD_NOW);
	printf("started %d\n", dlsym(self, "printf") != NULL);
	return 0;
}
