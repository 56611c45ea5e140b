/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Names and texts of the results.
 */
#include "cuda_core.h"

static const struct {
	CUresult code;
	const char *name, *text;
} results[] = {
#define X(name, code, text) { code, #name, text },
	CUDA_RESULTS(X)
#undef X
};

static int find(CUresult code)
{
	for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
		if (results[i].code == code)
			return (int)i;
	return -1;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	int i = find(error);
	NEED(name);
	*name = i < 0 ? NULL : results[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	int i = find(error);
	NEED(text);
	*text = i < 0 ? NULL : results[i].text;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
