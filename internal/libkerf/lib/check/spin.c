/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a launch costs the program. Of a function that is none: the simulated driver refuses it, and the one that does
 * nothing takes it.
 */
#include <time.h>

#include "kerfcheck.h"

void spin(unsigned long long n)
{
	__typeof__(&cuLaunchKernel) launch = CALL(cuLaunchKernel);
	struct timespec a, b;
	int ret = 0;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned long long i = 0; i < n; i++)
		ret = launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%d %.1f\n", ret, ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)n);
}
