#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# bench-console.sh [NODES] [VIEWERS] [CHANGES] [SECONDS]   CPU and memory of the console while viewers read its stream.
# CHANGES nodes change each second. The cluster is invented; reading a real one costs the decoding of its watch as well.
set -euo pipefail
cd "$(dirname "$0")/.."

nodes=${1:-5000} viewers=${2:-50} changes=${3:-10} seconds=${4:-60}
folder=$(mktemp -d)
server='' readers=()
trap 'kill "${readers[@]}" $server 2>/dev/null || true; rm -rf "$folder"' EXIT

go build -o "$folder/consoleserver" ./test/consoleserver
"$folder/consoleserver" -nodes "$nodes" -changes "$changes" -open -heap "$folder/heap" >"$folder/address" &
server=$!
until grep -q http "$folder/address"; do sleep 0.1; done
host=$(sed 's|/login.*||' "$folder/address")

# The state must be complete before the viewers come, as in a console that has run for long.
until grep -m1 -q "h100-$((nodes - 1))\"" < <(curl -sN --max-time 60 "$host/api/stream"); do sleep 1; done
for _ in $(seq "$viewers"); do
	curl -sN "$host/api/stream" >/dev/null &
	readers+=($!)
done

ticks() { awk '{print $14 + $15}' "/proc/$server/stat"; }
sleep 30 # the first states have been sent
from=$(ticks)
sleep "$seconds"
to=$(ticks)
peak=$(awk '/VmHWM/ {print $2 / 1024}' "/proc/$server/status")
kill "$server"
wait "$server" # it says how large the live heap was
server=''
awk -v n="$nodes" -v v="$viewers" -v c="$changes" -v t="$((to - from))" -v hz="$(getconf CLK_TCK)" -v s="$seconds" -v peak="$peak" 'BEGIN {
	printf "console: %d nodes, %d viewers, %d changes per second\n", n, v, c
	printf "RESULT console.cpu %.3g %%\nRESULT console.resident %.3g MiB\n", 100 * t / hz / s, peak
}'
sed -n 's/^heap \(.*\)/RESULT console.heap \1 MiB/p' "$folder/address"
