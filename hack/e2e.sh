#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the end-to-end suite on a real Kubernetes: brings the node up, runs the tests, prints what each took, and
# ends the node if it was not up before. KERF_E2E_KEEP=1 leaves it up; arguments go to "go test".
set -euo pipefail
cd "$(dirname "$0")/.."

node=test/e2e/node/node.sh
dir=${KERF_E2E_DIR:-$PWD/.cache/e2e}
if [ "$(id -u)" != 0 ]; then
	echo "e2e: the node needs root: run it as root (sudo --preserve-env=PATH make e2e)" >&2
	exit 1
fi

# shellcheck disable=SC2317 # the trap calls it
end() {
	local status=$?
	trap '' INT TERM HUP # a second one would leave the node half ended; what is called here ignores them too
	if [ "$found" = down ] && [ "${KERF_E2E_KEEP:-}" != 1 ]; then
		# What the daemons said is of use after a failure, and "down" deletes it.
		if [ "$status" != 0 ] && [ -d "$dir/log" ]; then
			rm -rf "$dir/failures/log"
			mkdir -p "$dir/failures"
			cp -r "$dir/log" "$dir/failures/log"
			echo "e2e: failed; what is known is in $dir/failures" >&2
		fi
		"$node" down
	fi
	exit "$status"
}
found=up
"$node" status >/dev/null 2>&1 || [ $? != 3 ] || found=down # 3: nothing of it runs
trap end EXIT
trap "trap '' INT TERM HUP; exit 143" INT TERM HUP
rm -rf "$dir/failures"
if [ "$found" = down ]; then
	"$node" down # of a run that was killed: its pods would come up again
fi

(cd test/e2e && go test -race ./nvidiaruntime)

began=$SECONDS
"$node" up
ready=$SECONDS
report=$dir/tests.txt
passed=0
(cd test/e2e && go test -race -count=1 -v -timeout 40m "$@" .) 2>&1 | tee "$report" | sed -u '/^=== /d' || passed=$?
echo
echo "e2e: the node took $((ready - began)) s, the tests $((SECONDS - ready)) s; each, longest first:"
sed -nE 's/^--- ([A-Z]+): ([^ ]+) \(([0-9.]+)s\)$/\3 \2 \1/p' "$report" | sort -rn |
	awk '{printf "  %7.1f s  %-44s %s\n", $1, $2, $3}'
exit "$passed"
