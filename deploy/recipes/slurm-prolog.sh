#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Run with Slurm 22.05 and simulated GPUs: make e2e-neighbors. docs/use/slurm.md has what it is for, and its limits.
#
# slurm.conf: Prolog=/etc/slurm/kerf-prolog.sh. If the agent does not accept requests, Slurm drains the node (exit status 1).
set -euo pipefail
PATH=/usr/local/bin:/usr/bin:/bin # Slurm sets none
exec kerf status --wait ready --timeout 60s >/dev/null
