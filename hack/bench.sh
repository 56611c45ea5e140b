#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh REGEXP   runs the benchmarks that REGEXP chooses, in the packages that have any.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(grep -rl --include='*_test.go' '^func Benchmark' --exclude-dir=tools --exclude-dir=.cache . |
	xargs -r -n 1 dirname | sort -u)
if [ -z "$packages" ]; then
	echo "no benchmark found" >&2
	exit 1
fi
# shellcheck disable=SC2086 # one word for each package
go test -ldflags '-extldflags=-Wl,-z,lazy' -run '^$' -bench "$1" -benchmem $packages
