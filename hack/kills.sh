#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# kills.sh TOTAL   kills programs that count their memory in the library at random moments, and looks whether anything is
# left or hangs, until TOTAL were killed. It goes in rounds and notes after each how many that were, for this
# state of the library and its test: run again, it goes on from there.
set -euo pipefail
cd "$(dirname "$0")/.."

total=$1 round=2000
state=$(cat internal/libkerf/*.go internal/libkerf/lib/*.c internal/libkerf/lib/*.h internal/libkerf/lib/*.def \
	internal/libkerf/lib/check/*.c internal/libkerf/lib/libtest/kill_test.go |
	sha256sum | cut -c 1-16)
mkdir -p .cache/kills
count=.cache/kills/$state
done=$(cat "$count" 2>/dev/null || echo 0)
binary=$(mktemp -d)
trap 'rm -rf "$binary"' EXIT
go test -c -o "$binary/libtest" ./internal/libkerf/lib/libtest
began=$SECONDS start=$done
while [ "$done" -lt "$total" ]; do
	n=$((total - done < round ? total - done : round))
	(cd internal/libkerf/lib/libtest && "$binary/libtest" -test.count=1 -test.timeout 30m -test.run '^TestKilledAtAnyMoment$' -kills "$n" >"$binary/said" 2>&1) || {
		cat "$binary/said" >&2
		echo "kills: something was left or hung in the $n after $done" >&2
		exit 1
	}
	done=$((done + n))
	echo "$done" >"$count"
done
took=$((SECONDS - began))
echo "kills: $done of $total of this library, $((done - start)) in this run in $took s ($(((done - start) / (took > 0 ? took : 1))) a second): no hang, not a byte left"
