#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# fuzz-smoke.sh TIME [PACKAGE...]   runs each fuzz target of the packages (of all, when none is given) for
# TIME, as go test -fuzztime takes it.
set -euo pipefail
cd "$(dirname "$0")/.."

time=$1
shift
if [ $# -eq 0 ]; then
	set -- ./...
fi

if ! listed=$(go test -list '^Fuzz' "$@"); then
	grep -v '^ok\|^Fuzz\|no test files' <<<"$listed" >&2
	exit 1
fi
# go test -list prints the names of a package's targets and then "ok <package>".
targets=$(awk '/^Fuzz/ {names[++n] = $1; next}
	/^ok/ {for (i = 1; i <= n; i++) print $2, names[i]; n = 0}' <<<"$listed")
if [ -z "$targets" ]; then
	echo "no fuzz target found" >&2
	exit 1
fi
while read -r package target; do
	echo "--- $package $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
done <<<"$targets"
