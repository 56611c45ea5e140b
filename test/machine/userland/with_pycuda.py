# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# PyCUDA: allocations, copies, a module that nvcc compiles, and what is refused.
import os

import numpy
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

cap = int(os.environ.get("USERLAND_CAP", "0"))
cuda.init()
context = cuda.Device(0).make_context()
try:
    free, total = cuda.mem_get_info()
    whole = os.environ.get("USERLAND_TOTAL") == "whole"
    assert not cap or (free <= cap if whole else total == cap), (free, total)
    assert cuda.Device(0).total_memory() == total
    data = numpy.arange(4096, dtype=numpy.float32)
    memory = cuda.mem_alloc(data.nbytes)
    cuda.memcpy_htod(memory, data)
    back = numpy.empty_like(data)
    cuda.memcpy_dtoh(back, memory)
    assert (back == data).all()
    module = SourceModule("__global__ void twice(float *p) { p[threadIdx.x] *= 2; }", options=["-allow-unsupported-compiler", "-ccbin", os.environ["USERLAND_CXX"]])
    module.get_function("twice")(memory, block=(32, 1, 1), grid=(1, 1))
    context.synchronize()
    try:
        cuda.mem_alloc(total + (1 << 30))
        raise SystemExit("more than there is was not refused")
    except cuda.MemoryError:
        pass
    memory.free()
    del module
    print("pycuda", back.sum())
finally:
    context.pop()
    context.detach()
