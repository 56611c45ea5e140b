#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Rendered and validated only: the other side was not run with it. docs/use/other-tools.md has what it is for, and its limits.
#
# slurm.conf: Epilog=/etc/slurm/kerf-epilog.sh, on nodes that one job has at a time. A grant ends with its processes, which Slurm
# has ended by now: this waits until the driver has forgotten them, and drains the node where it does not.
set -euo pipefail
exec kerf status --wait grants=0 --timeout 60s >/dev/null
