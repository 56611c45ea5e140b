#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Run with Slurm 22.05 and simulated GPUs: make e2e-neighbors. docs/use/slurm.md has what it is for, and its limits.
#SBATCH --job-name=train
#SBATCH --ntasks=1
#SBATCH --gres=shard:10
# Slurm has chosen a GPU and a number of shards, of 1 GiB each. Kerf enforces this cap on the same GPU.
set -euo pipefail
gpu=$(nvidia-smi --query-gpu=uuid --format=csv,noheader --id="$SLURM_JOB_GPUS")
exec kerf run --name "slurm-$SLURM_JOB_ID-batch" --memory "${SLURM_SHARDS_ON_NODE}GiB" --gpu-uuid "$gpu" \
	--min-enforcement userspace -- python3 train.py
