/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * By 16 bytes the CUDA runtime makes sure that it talks to NVIDIA's driver: HMAC with MD2 (RFC 2104, RFC 1319) over the
 * versions, the caller, some addresses, the time, and the GPUs.
 */
#include "cuda_core.h"
#include "cuda_export.h"

#include <unistd.h>

#define BLOCK 16
#define ROUNDS 18

struct md2 {
	unsigned char state[3 * BLOCK], sum[BLOCK], part[BLOCK];
	unsigned char last;
	size_t n; /* bytes in part */
};

/* RFC 1319, section 3.2. */
static const unsigned char pi[256] = {
	41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19,
	98, 167, 5, 243, 192, 199, 115, 140, 152, 147, 43, 217, 188, 76, 130, 202,
	30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18,
	190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122,
	169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33,
	128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3,
	255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198,
	79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4, 241,
	69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2,
	27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15,
	85, 71, 163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234, 38,
	44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82,
	106, 220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74,
	120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57,
	242, 239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10,
	49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51, 159, 17, 131, 20,
};

static void block(struct md2 *m)
{
	unsigned t = 0;
	for (size_t i = 0; i < BLOCK; i++) {
		m->last = m->sum[i] ^= pi[m->part[i] ^ m->last];
		m->state[BLOCK + i] = m->part[i];
		m->state[2 * BLOCK + i] = m->state[i] ^ m->part[i];
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < sizeof m->state; i++)
			t = m->state[i] ^= pi[t];
		t = (t + round) % 256;
	}
	m->n = 0;
}

static void add(struct md2 *m, const void *data, size_t bytes, unsigned char mask)
{
	for (size_t i = 0; i < bytes; i++) {
		m->part[m->n++] = ((const unsigned char *)data)[i] ^ mask;
		if (m->n == BLOCK)
			block(m);
	}
}

static void end(struct md2 *m, unsigned char digest[BLOCK])
{
	unsigned char sum[BLOCK];
	size_t pad = BLOCK - m->n;
	for (size_t i = 0; i < pad; i++)
		add(m, &(unsigned char){ (unsigned char)pad }, 1, 0);
	memcpy(sum, m->sum, BLOCK);
	add(m, sum, BLOCK, 0);
	memcpy(digest, m->state, BLOCK);
}

struct caller {
	unsigned driver, runtime, process, thread;
	const void *interface, *identity, *function;
	uint64_t seconds;
};
struct gpu {
	CUuuid uuid;
	int domain, bus, device;
};

CUresult cuda_identify(unsigned version, uint64_t seconds, uint64_t out[2])
{
	static const unsigned char key[BLOCK] = { 0x14, 0x6A, 0xDD, 0xAE, 0x53, 0xA9, 0xA7, 0x52,
						  0xAA, 0x08, 0x41, 0x36, 0x0B, 0xF5, 0x5A, 0x9F };
	struct md2 inner = { .n = 0 }, outer = { .n = 0 };
	unsigned char digest[BLOCK];
	struct device *list;
	TRY(cuda_enter());
	NEED(out);
	out[1] = UINT64_C(0x8ED383AA1F4CD1E8);
	out[0] = version % 10 ? UINT64_C(0x1841181C03CB675C) : UINT64_C(0x3341181C03CB675C);
	if (version % 10 < 2)
		return CUDA_SUCCESS;
	const struct caller c = { (unsigned)gpusim_cuda_version, version, (unsigned)getpid(),
				  (unsigned)(uintptr_t)pthread_self(),
				  cuda_export_runtime, cuda_export_identity, cuda_export_identity[1], seconds };
	add(&inner, key, BLOCK, 0x36);
	add(&inner, &c, sizeof c, 0);
	int n = cuda_devices(&list);
	for (int i = 0; i < n; i++) {
		struct gpu g = { .domain = (int)list[i].domain, .bus = (int)list[i].bus, .device = (int)list[i].device };
		TRY(cuDeviceGetUuid_v2(&g.uuid, i));
		add(&inner, &g, sizeof g, 0);
	}
	end(&inner, digest);
	add(&outer, key, BLOCK, 0x5c);
	add(&outer, digest, BLOCK, 0);
	end(&outer, digest);
	memcpy(out, digest, BLOCK);
	return CUDA_SUCCESS;
}
