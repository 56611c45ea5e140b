#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# gate.sh TARGET ...   runs make targets to the last, each with its log below LOGS (.cache/gate), and prints one table.
# A name with "?" may be one that did not run, which its last line says ("NAME: did not run: REASON").
# Exit status 1: one failed, or did not run.
set -uo pipefail
cd "$(dirname "$0")/.."

logs=${LOGS:-.cache/gate}
mkdir -p "$logs"
rows=() bad=0
for target in "$@"; do
	name=${target%\?} began=$SECONDS
	echo "=== make $name"
	if ! make "$name" >"$logs/$name.log" 2>&1; then
		result=FAILED bad=1
		tail -n 40 "$logs/$name.log"
	elif ! tail -n 1 "$logs/$name.log" | grep -q "^$name: did not run"; then
		result=ok
	else
		result='not run'
		tail -n 1 "$logs/$name.log"
		if [ "$name" = "$target" ]; then
			bad=1
		fi
	fi
	rows+=("$(printf '%-20s %-8s %s' "$name" "$result" $((SECONDS - began)))")
	echo "=== make $name: $result in $((SECONDS - began)) s"
done

printf '\n%-20s %-8s %s\n' GATE RESULT SECONDS
printf '%s\n' "${rows[@]}"
if [ "$bad" -ne 0 ]; then
	echo "gate: FAILED in $SECONDS s; the logs are in $logs" >&2
	exit 1
fi
echo "gate: ok in $SECONDS s"
