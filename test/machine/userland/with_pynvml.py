# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# NVIDIA's Python bindings of NVML: what a tool sees of the memory of its GPU.
import os

import pynvml

cap = int(os.environ.get("USERLAND_CAP", "0"))
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
totals = [pynvml.nvmlDeviceGetMemoryInfo(g).total for g in gpus]
assert not cap or os.environ.get("USERLAND_TOTAL") == "whole" or cap in totals, totals
for g in gpus:
    pynvml.nvmlDeviceGetName(g), pynvml.nvmlDeviceGetUtilizationRates(g), pynvml.nvmlDeviceGetComputeRunningProcesses(g)
pynvml.nvmlShutdown()
print("pynvml")
