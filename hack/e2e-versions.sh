#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests that each supported version must pass, on one version after the other, and writes the results to
# test/e2e/versions.txt, from which the docs have their table:
#
#   hack/e2e-versions.sh [VERSION...]
#   hack/e2e-versions.sh --check
#
# With --check it runs nothing. The exit status is 1 if a version lacks a row of a run that passed: a release needs all.
# VERSION is one of Kubernetes, as 1.32.9, of containerd, as containerd-1.7.35, or crio for the version of CRI-O that is
# built. Each runs with the default version of the others. Without arguments, it runs all. Each version is built once, from
# pinned modules, which takes some ten minutes. A version that fails does not end the run; the exit status is 1 then.
set -euo pipefail
cd "$(dirname "$0")/.."

# The parts of Kerf that depend on the version of Kubernetes: a capped pod and a greedy one, an agent that is killed, MIG on
# demand, gangs and preemption, admission, and the chart with its removal.
tests='^(TestFraction|TestAgentAway|TestMIG|TestSchedulerPlaces|TestSchedulerGang|TestSchedulerGangPreempts|TestSchedulerPreempts|TestPolicies|TestPoliciesRefuse|TestChart)$'
# Shares by ResourceClaim need consumable capacity, which is on since 1.36.
claims='TestDRAShares|TestDRAMIG|TestDRAPending|TestDRAAdmission'
results=test/e2e/versions.txt
default=$(sed -n 's/^K8S_DEFAULT=\([^ ]*\) .*/\1/p' test/e2e/node/build.sh)
runtime=$(sed -n 's/.* CONTAINERD_DEFAULT=\([^ ]*\) .*/\1/p' test/e2e/node/build.sh)
crio=$(sed -n 's/^CRIO_VERSION=//p' test/e2e/node/crio.sh)
tools=${KERF_E2E_TOOLS:-$PWD/.cache/e2e}

# A row names the commit of its run. The docs take no row of changed files.
commit=$(git rev-parse --short=8 HEAD)
[ -z "$(git status --porcelain -- . ":!$results" ':!docs/reference/versions.md')" ] || commit+=-changed

check=no
if [ "${1:-}" = --check ]; then
	check=yes
	shift
fi
if [ $# = 0 ]; then
	mapfile -t versions < <(basename -s .mod test/e2e/node/kubernetes/versions/*.mod | sort -V)
	mapfile -t runtimes < <(basename -s .mod test/e2e/node/containerd/versions/*.mod | sort -V)
	set -- "${versions[@]}" "$default" "${runtimes[@]/#/containerd-}" crio
fi
failed=0
for version; do
	began=$SECONDS result=passed kubernetes=$version containerd=$runtime name=containerd
	case $version in
	containerd-*) kubernetes=$default containerd=${version#containerd-} ;;
	crio) kubernetes=$default name=crio ;;
	esac
	row="$kubernetes containerd-$containerd"
	[ "$name" != crio ] || row="$kubernetes crio-$crio"
	if [ "$check" = yes ]; then
		grep -q "^$row passed " "$results" || {
			echo "e2e-versions: $results has no run of $row that passed: run hack/e2e-versions.sh $version" >&2
			failed=1
		}
		continue
	fi
	dir=$PWD/.cache/e2e-$version
	run=$tests
	[ "$(printf '%s\n' 1.36 "$kubernetes" | sort -V | head -n 1)" != 1.36 ] || run="${tests%)$}|$claims)$"
	rm -f "$dir/tests.txt"
	KERF_E2E_KUBERNETES=$kubernetes KERF_E2E_CONTAINERD=$containerd KERF_E2E_RUNTIME=$name KERF_E2E_TOOLS=$tools KERF_E2E_DIR=$dir \
		hack/e2e.sh -run "$run" || result=failed failed=1
	echo "e2e-versions: $version: $result after $((SECONDS - began)) s"
	if [ ! -s "$dir/tests.txt" ]; then
		echo "e2e-versions: $version: no test ran, so $results stays as it is" >&2
		continue
	fi
	passed=$(grep -c '^--- PASS: ' "$dir/tests.txt" || true)
	skipped=$(sed -n 's/^--- SKIP: \([^ ]*\) .*/\1/p' "$dir/tests.txt" | sort | paste -sd,)
	{ grep -sv "^$row " "$results" || true; echo "$row $result $(date -u +%F) $commit $passed ${skipped:--}"; } | sort -V >"$results.new"
	mv "$results.new" "$results"
done
exit "$failed"
