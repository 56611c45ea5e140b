/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver that writes down its calls and the program that calls it share. every.def, which the test makes of
 * the published prototypes, has
 *
 *   CUDA(name, parameters, call, arguments...)  each function of the driver, or NVML(...) of the other library:
 *                                               its parameters, a call of it with the words v, its parameters' names
 *   ASKED(by, since, name, per_thread)          that cuGetProcAddress means it by a name, from a CUDA version on
 */
#ifndef EVERY_H
#define EVERY_H

#include <stdbool.h>
#include <stdint.h>

#define MOST 12 /* arguments */

/* The program's: writes down that a function was called, and with what; and the result that it is to have. */
int note(const char *name, int n, const uint64_t *arguments);

#define COUNT(...) ((int)(sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t)))

#endif
