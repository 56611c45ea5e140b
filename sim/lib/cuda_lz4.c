/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The LZ4 block format, in which nvcc packs code.
 */
#include "cuda_image.h"

#define LEAST_MATCH 4

/* A length of which half a byte is n; false: it ends too early. */
static bool length(size_t *n, const unsigned char **in, const unsigned char *end)
{
	if (*n != 15)
		return true;
	for (unsigned char byte = 255; byte == 255; *n += byte) {
		if (*in == end)
			return false;
		byte = *(*in)++;
	}
	return true;
}

bool cuda_lz4(unsigned char *out, size_t bytes, const unsigned char *in, size_t packed)
{
	const unsigned char *end = in + packed;
	size_t at = 0;
	while (in < end) {
		unsigned token = *in++;
		size_t literal = token >> 4, match = token & 15;
		if (!length(&literal, &in, end) || literal > (size_t)(end - in) || literal > bytes - at)
			return false;
		memcpy(out + at, in, literal);
		at += literal;
		in += literal;
		if (in == end)
			break;
		if (end - in < 2)
			return false;
		size_t back = in[0] | (size_t)in[1] << 8;
		in += 2;
		if (!length(&match, &in, end) || !back || back > at || match + LEAST_MATCH > bytes - at)
			return false;
		for (size_t i = 0; i < match + LEAST_MATCH; i++, at++)
			out[at] = out[at - back];
	}
	return at == bytes;
}
