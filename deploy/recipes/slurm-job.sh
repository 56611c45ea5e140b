#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Rendered and validated only: the other side was not run with it. docs/use/other-tools.md has what it is for, and its limits.
#SBATCH --job-name=train
#SBATCH --ntasks=1
#SBATCH --gres=shard:10
# Slurm counts the shares (gres.conf: Name=shard Count=80 for a GPU of 80 GiB), Kerf enforces the cap of each. KERF_GIB is to be
# the number of shards.
set -euo pipefail
exec kerf run --memory "${KERF_GIB:-10}GiB" --min-enforcement userspace -- python3 train.py
