#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Run with Slurm 22.05 and simulated GPUs: make e2e-neighbors. docs/use/slurm.md has what it is for, and its limits.
#
# slurm.conf: Epilog=/etc/slurm/kerf-epilog.sh. A grant ends with its processes, which Slurm has ended by now. The script waits
# until the driver has released their memory. If it does not within a minute, Slurm drains the node (exit status 1).
set -euo pipefail
PATH=/usr/local/bin:/usr/bin:/bin # Slurm sets none

grants() { kerf status -o 'jsonpath={range .grants[*]}{.name}{"\n"}{end}'; }
for _ in {1..120}; do
	names=$(grants)
	if ! grep -q "^slurm-$SLURM_JOB_ID-" <<<"$names"; then
		exit 0
	fi
	sleep 0.5
done
echo "kerf: grants of job $SLURM_JOB_ID did not end" >&2
exit 1
