#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests that each supported Kubernetes must pass, on one version after the other, and writes the results to
# test/e2e/versions.txt, from which the docs have their table:
#
#   hack/e2e-versions.sh [VERSION...]
#
# Without a version, it runs all. Each version is built once, from pinned modules, which takes some ten minutes. A version
# that fails does not end the run; the exit status is 1 then.
set -euo pipefail
cd "$(dirname "$0")/.."

# The parts of Kerf that depend on the version of Kubernetes: a capped pod and a greedy one, an agent that is killed, MIG on
# demand, gangs and preemption, admission, and the chart with its removal.
tests='^(TestFraction|TestAgentAway|TestMIG|TestSchedulerPlaces|TestSchedulerGang|TestSchedulerGangPreempts|TestSchedulerPreempts|TestPolicies|TestPoliciesRefuse|TestChart)$'
results=test/e2e/versions.txt
default=$(sed -n 's/^K8S_DEFAULT=\([^ ]*\) .*/\1/p' test/e2e/node/build.sh)
tools=${KERF_E2E_TOOLS:-$PWD/.cache/e2e}

if [ $# = 0 ]; then
	mapfile -t versions < <(basename -s .mod test/e2e/node/kubernetes/versions/*.mod | sort -V)
	set -- "${versions[@]}" "$default"
fi
failed=0
for version; do
	began=$SECONDS result=passed
	KERF_E2E_KUBERNETES=$version KERF_E2E_TOOLS=$tools KERF_E2E_DIR=$PWD/.cache/e2e-$version \
		hack/e2e.sh -run "$tests" || result=failed failed=1
	echo "e2e-versions: Kubernetes $version: $result after $((SECONDS - began)) s"
	{ grep -v "^$version " "$results" || true; echo "$version $result $(date -u +%F)"; } | sort -V >"$results.new"
	mv "$results.new" "$results"
done
exit "$failed"
