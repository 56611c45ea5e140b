# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# What PyTorch reaches on one GPU: torch.py rates|limits SCALE. Prints one line of JSON.
import json
import sys
import time

import torch

part, scale = sys.argv[1], float(sys.argv[2])
device = torch.device("cuda:0")


def rate(step, seconds):
    """Returns how often a step runs in a second."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    began, n = time.monotonic(), 0
    while time.monotonic() - began < seconds * scale:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        n += 5
    return n / (time.monotonic() - began)


def matmul():
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    return lambda: torch.mm(a, b)


def decode():
    """A graph of four layers with a batch of one: many small kernels."""
    layers = [torch.nn.TransformerEncoderLayer(2048, 16, 8192, dropout=0.0, batch_first=True) for _ in range(4)]
    net = torch.nn.Sequential(*layers).to(device, torch.bfloat16).eval()
    x = torch.randn(1, 1, 2048, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(x)
    return graph.replay


def train():
    net = torch.nn.Sequential(torch.nn.Linear(4096, 16384), torch.nn.ReLU(), torch.nn.Linear(16384, 4096)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(512, 4096, device=device)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def rates():
    return {"rates": {f.__name__: rate(f(), 3) for f in (matmul, decode, train)}}


def limits():
    """Allocates to the end, meets out-of-memory, frees, and computes again at 50 and 80% of the memory."""
    total = torch.cuda.mem_get_info()[1]
    kept, oom = [], False
    try:
        while len(kept) * 2**30 < 2 * total:
            kept.append(torch.empty(2**30, dtype=torch.uint8, device=device))
    except torch.cuda.OutOfMemoryError:
        oom = True
    kept.clear()
    torch.cuda.empty_cache()
    recovered = True
    for percent in (50, 80):
        try:
            block = torch.full((total * percent // 100,), 3, dtype=torch.uint8, device=device)
            recovered = recovered and bool((block[:: 2**20] == 3).all())
            for i in range(20):
                torch.empty((i % 7 + 1) * 2**24, dtype=torch.uint8, device=device)
            del block
            torch.cuda.empty_cache()
        except torch.cuda.OutOfMemoryError:
            recovered = False
    return {"total_bytes": total, "oom": oom, "recovered": recovered}


result = {"version": torch.__version__, "error": ""}
result.update(rates() if part == "rates" else limits())
print(json.dumps(result))
