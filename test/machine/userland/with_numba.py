# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Numba: its own list of GPUs, arrays on the GPU, streams, and what is refused.
import os

import numpy

os.environ["NUMBA_CUDA_DRIVER"] = os.environ["USERLAND_CUDA"]
from numba import cuda
from numba.cuda.cudadrv import driver

# Numba 0.56 calls the newest version of a name. Since driver r580, cuCtxGetDevice_v2 has one more argument.
find = driver.Driver._find_api
driver.Driver._find_api = lambda self, name: getattr(self.lib, name) if name == "cuCtxGetDevice" else find(self, name)

cap = int(os.environ.get("USERLAND_CAP", "0"))
free, total = cuda.current_context().get_memory_info()
whole = os.environ.get("USERLAND_TOTAL") == "whole"
assert not cap or (free <= cap if whole else total == cap), (free, total)
data = numpy.arange(4096, dtype=numpy.float32)
stream = cuda.stream()
array = cuda.to_device(data, stream=stream)
back = array.copy_to_host(stream=stream)
stream.synchronize()
assert (back == data).all()
with cuda.pinned(data):
    cuda.to_device(data, to=array)
assert cuda.managed_array(16, dtype=numpy.int8).size == 16
try:
    cuda.device_array(total + (1 << 30), dtype=numpy.int8)
    raise SystemExit("more than there is was not refused")
except driver.CudaAPIError as refused:
    assert "CUDA_ERROR_OUT_OF_MEMORY" in str(refused), refused
del array, stream
cuda.current_context().deallocations.clear()
print("numba", cuda.get_current_device().name.decode(), back.sum())
cuda.close()
