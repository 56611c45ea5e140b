#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the end-to-end suite on a real Kubernetes: brings the nodes up, runs the tests, prints what each took, and
# ends the nodes that were not up before. KERF_E2E_KEEP=1 leaves them up; arguments go to "go test".
#
# Most tests wait most of the time, and many may not meet another one on their node, since they end daemons of it. So
# the whole suite runs on KERF_E2E_NODES nodes (default 3) at the same time, every test on one of them. With arguments it
# runs on one node.
set -euo pipefail
cd "$(dirname "$0")/.."

script=test/e2e/node/node.sh
dir=${KERF_E2E_DIR:-$PWD/.cache/e2e}
nodes=${KERF_E2E_NODES:-3}
[ $# = 0 ] || nodes=1
if ! [ "$nodes" -ge 1 ] 2>/dev/null; then
	echo "e2e: KERF_E2E_NODES is \"$nodes\": make it a number of nodes, 1 or more" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "e2e: the node needs root: run it as root (sudo --preserve-env=PATH make e2e)" >&2
	exit 1
fi

# dir_of N: where node N is kept.
dir_of() { [ "$1" = 1 ] && echo "$dir" || echo "$dir-$1"; }

# at N CMD...: with the settings of node N. All use the first one's binaries, and each finds another network.
at() {
	local settings=("KERF_E2E_DIR=$(dir_of "$1")" "KERF_E2E_TOOLS=${KERF_E2E_TOOLS:-$dir}")
	[ "$1" = 1 ] || settings=(-u KERF_E2E_NET "${settings[@]}")
	shift
	env "${settings[@]}" "$@"
}

# share N: the tests of node N, as a regular expression. The longest are given out first, each to the node that has least
# to do, by the seconds that test/e2e/seconds.txt says; a test that is not in it is a short one.
share() {
	awk '
		FILENAME != ARGV[2] { if ($1 !~ /^#/) seconds[$1] = $2; next }
		/^Test/ { print ($1 in seconds ? seconds[$1] : 5), FNR, $1 }' test/e2e/seconds.txt "$dir/list.txt" |
		sort -k1,1nr -k2,2n | awk -v nodes="$nodes" -v me="$1" '
		{
			least = 1
			for (n = 2; n <= nodes; n++) if (busy[n] < busy[least]) least = n
			busy[least] += $1
			if (least == me) { printf "%s%s", sep, $3; sep = "|" }
		}'
}

# first_words FILE: of each test that failed, or did not end, the first lines that it said, which mostly name the cause. A
# reader who sees the beginning of a long log alone is to find them there.
first_words() {
	awk '
		function tell() { if (name != "" && !passed) print "--- " name ":\n" said }
		/^=== RUN +[^\/]+$/ { tell(); name = $3; said = ""; lines = 0; passed = 0; next }
		/^=== / { next }
		/^--- (PASS|SKIP): / { passed = 1; next }
		lines < 8 { said = said substr($0, 1, 600) "\n"; lines++ }
		END { tell() }' "$1"
}

# shellcheck disable=SC2317 # the trap calls it
end() {
	local status=$? n d
	trap '' INT TERM HUP # a second one would leave the nodes half ended; what is called here ignores them too
	for n in "${runs[@]}"; do
		kill -- "-$n" 2>/dev/null || true
	done
	wait || true
	for ((n = 1; n <= nodes; n++)); do
		d=$(dir_of "$n")
		if [ "${found[n]:-up}" = up ] || [ "${KERF_E2E_KEEP:-}" = 1 ]; then
			continue
		fi
		# What the daemons said is of use after a failure, and "down" deletes it.
		if [ "$status" != 0 ] && [ -d "$d/log" ]; then
			rm -rf "$d/failures/log"
			mkdir -p "$d/failures"
			cp -r "$d/log" "$d/failures/log"
			echo "e2e: failed; what is known is in $d/failures" >&2
		fi
		at "$n" "$script" down
	done
	exit "$status"
}
found=() runs=()
trap end EXIT
trap "trap '' INT TERM HUP; exit 143" INT TERM HUP
for ((n = 1; n <= nodes; n++)); do
	state=up
	at "$n" "$script" status >/dev/null 2>&1 || [ $? != 3 ] || state=down # 3: nothing of it runs
	found[n]=$state
	rm -rf "$(dir_of "$n")/failures"
	if [ "$state" = down ]; then
		at "$n" "$script" down # of a run that was killed: its pods would come up again
	fi
done

(cd test/e2e && go test -race ./nvidiaruntime ./walk)

began=$SECONDS
at 1 "$script" build # before a node looks for a free network, since it takes minutes
for ((n = 1; n <= nodes; n++)); do # one after the other, so that each finds another network
	at "$n" "$script" up
done
ready=$SECONDS
failed=0
if [ "$nodes" = 1 ]; then
	(cd test/e2e && go test -race -count=1 -v -timeout 40m "$@" .) 2>&1 | tee "$dir/tests.txt" | sed -u '/^=== /d' || failed=$?
else
	program=$dir/e2e.test
	(cd test/e2e && go test -race -c -o "$program" .)
	(cd test/e2e && "$program" -test.list .) >"$dir/list.txt"
	set -m # each run is a process group, which "end" can end as one
	for ((n = 1; n <= nodes; n++)); do
		mine=$(share "$n")
		# The results as they come; all that a node's tests said follows when one of them has failed.
		(
			set -o pipefail
			cd test/e2e
			at "$n" "$program" -test.count=1 -test.v -test.timeout 40m -test.run "^($mine)\$" 2>&1 |
				tee "$(dir_of "$n")/tests.txt" | grep --line-buffered '^--- ' | sed -u "s/\$/ on node $n/"
		) &
		runs+=($!)
	done
	for ((n = 1; n <= nodes; n++)); do
		status=0
		wait "${runs[n - 1]}" || status=$?
		if [ "$status" != 0 ]; then
			failed=$status
			echo "e2e: how each test that failed on node $n began to say why:"
			first_words "$(dir_of "$n")/tests.txt"
		fi
	done
	runs=()
	[ "$failed" = 0 ] || for ((n = 1; n <= nodes; n++)); do
		echo "e2e: all that the tests on node $n said:"
		sed '/^=== /d' "$(dir_of "$n")/tests.txt"
	done
fi
echo
echo "e2e: $nodes node(s) took $((ready - began)) s, the tests $((SECONDS - ready)) s; each, longest first:"
for ((n = 1; n <= nodes; n++)); do
	sed -nE 's/^--- ([A-Z]+): ([^ ]+) \(([0-9.]+)s\)$/\3 \2 \1/p' "$(dir_of "$n")/tests.txt"
done | sort -rn | awk '{printf "  %7.1f s  %-44s %s\n", $1, $2, $3}'
exit "$failed"
