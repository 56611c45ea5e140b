#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh REGEXP PODS ROUNDS NODES BOUND MIG_PODS   runs the benchmarks that REGEXP chooses, in the packages that have any; for all of
# them (.) also what figures.sh measures; then starts PODS pods at once on a real Kubernetes, ROUNDS times, and tells what the agent took for each. 0 pods: not that.
# Then so many pods as MIG_PODS says get MIG instances that are created for them, one after the other and many at once. 0: not that.
# At last kerf-scheduler and kube-scheduler bind BOUND pods each to NODES hollow nodes there, ROUNDS times. 0 nodes: not that.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(grep -rl --include='*_test.go' '^func Benchmark' --exclude-dir=tools --exclude-dir=.cache . |
	xargs -r -n 1 dirname | sort -u)
if [ -z "$packages" ]; then
	echo "no benchmark found" >&2
	exit 1
fi
# shellcheck disable=SC2086 # one word for each package
go test -run '^$' -bench "$1" -benchmem $packages

[ "$1" != . ] || hack/figures.sh

pods=$2 rounds=$3 nodes=$4 bound=$5 mig_pods=$6
[ "$pods $nodes $mig_pods" != "0 0 0" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "bench: the node needs root: run it as root, or leave it out (make bench PODS=0 NODES=0)" >&2
	exit 1
fi
echo "bench: $pods pods at once, $bound pods on $nodes hollow nodes, $mig_pods MIG instances, on $(nproc) cores, load before it: $(cut -d' ' -f1-3 /proc/loadavg)"
hack/e2e.sh -run '^TestBench(ManyPods|FrontEnds|MIG|Scheduler)$' -timeout 3h -bench-pods="$pods" -bench-rounds="$rounds" -bench-nodes="$nodes" -bench-bound="$bound" -bench-mig-pods="$mig_pods"
