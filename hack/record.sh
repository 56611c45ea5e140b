#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# record.sh COMMAND...   runs a benchmark, prints its output, and takes the measured values into docs/benchmarks/results.json
# and the pages. The exit status is that of the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p .cache/bench
output=.cache/bench/$(date -u +%Y%m%d-%H%M%S).txt
status=0
"$@" 2>&1 | tee "$output" || status=$?
if grep -qE '^Benchmark.*/op|RESULT ' "$output"; then
	(cd tools && go run ./benchpages collect ../docs/benchmarks/results.json <"../$output" && go run ./benchpages ../docs/benchmarks)
fi
exit "$status"
