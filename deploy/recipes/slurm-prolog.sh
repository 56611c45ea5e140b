#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Rendered and validated only: the other side was not run with it. docs/use/other-tools.md has what it is for, and its limits.
#
# slurm.conf: Prolog=/etc/slurm/kerf-prolog.sh. A node whose agent does not take claims is drained by Slurm (exit status 1).
set -euo pipefail
exec kerf status --wait ready --timeout 60s >/dev/null
