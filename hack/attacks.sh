#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# attacks.sh [short]   runs the attacks of docs/reference/attacks.md on each driver and prints one table.
# Exit status 1: an attack ended otherwise, or did not run.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "kerf: the attacks make cgroups and mount namespaces: run 'make attacks' as root" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$work/table flags=() failed=0
if [ "${1:-}" = short ]; then
	flags=(-attacks-short)
fi

go test -c -o "$work/machine.test" ./test/machine
for driver in r580 r615; do
	if ! (cd test/machine && "$work/machine.test" -test.run '^TestAttacks$' -test.timeout 9m -attacks "$driver" \
		-attacks-table "$table" "${flags[@]}") >"$work/$driver.log" 2>&1; then
		failed=1
		cat "$work/$driver.log"
	fi
done

# Admission knows no driver. The API server's own code judges.
if [ "${#flags[@]}" -eq 0 ]; then
	began=$SECONDS result=ok
	if ! (cd tools/chart && CGO_ENABLED=0 GOFLAGS=-trimpath go test -count=1 -run '^TestAttempts$' .) >"$work/admission.log" 2>&1; then
		failed=1 result=FAILED
		cat "$work/admission.log"
	fi
	printf 'pods and nodes at admission\t-\tdenied, or warned where the policy only warns\t%s\t%d\n' \
		"$result" $((SECONDS - began)) >>"$table"
fi

{
	printf 'ATTACK\tDRIVER\tEXPECTED\tRESULT\tSECONDS\n'
	cat "$table"
} | awk -F'\t' '{printf "%-30s %-7s %-46s %-7s %s\n", $1, $2, $3, $4, $5}'
if [ "$failed" -ne 0 ] || grep -q FAILED "$table"; then
	echo "attacks: FAILED" >&2
	exit 1
fi
echo "attacks: each of $(wc -l <"$table") ended as docs/reference/attacks.md says, in $SECONDS s"
