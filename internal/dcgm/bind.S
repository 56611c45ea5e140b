/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The functions of functions.h: each jumps to the address in its slot, which library.go fills. Until then, and if the library
 * lacks the function, it returns DCGM_ST_FUNCTION_NOT_FOUND. They are hidden, so that the library's own calls stay its own.
 * Open has found each that Kerf calls before it calls one.
 */
#define NOT_FOUND -20

#if defined(__x86_64__)
#define JUMP(slot) jmp *slot(%rip)
#define RETURN(code) movl $code, %eax; ret
#elif defined(__aarch64__)
#define JUMP(slot) adrp x16, slot; ldr x16, [x16, :lo12:slot]; br x16
#define RETURN(code) mov w0, code; ret
#else
#error "DCGM is bound on amd64 and arm64 only"
#endif

	.text
missing:
	RETURN(NOT_FOUND)

#define FUNCTION(name) .globl name; .hidden name; .type name, %function; name: JUMP(.Lslot_##name); .size name, . - name;
#include "functions.h"
#undef FUNCTION

	.data
	.balign 8
	.globl kerf_dcgm_slots
	.hidden kerf_dcgm_slots
kerf_dcgm_slots:
#define FUNCTION(name) .Lslot_##name: .quad missing;
#include "functions.h"
#undef FUNCTION

	.section .rodata
	.globl kerf_dcgm_names
	.hidden kerf_dcgm_names
kerf_dcgm_names:
#define FUNCTION(name) .asciz #name;
#include "functions.h"
#undef FUNCTION
	.byte 0

	.section .note.GNU-stack, "", %progbits
