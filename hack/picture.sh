#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Records the transcript of the README's picture, docs/picture.txt, on a cluster with Kerf: that of the quick start, after
# eval "$(hack/cluster.sh env)". It leaves out the rows of other nodes and GPUs. 'make generate' draws docs/picture.svg from it.
set -euo pipefail
cd "$(dirname "$0")/.."

out=docs/picture.txt
trap 'kubectl delete -f docs/walk/picture.yaml --ignore-not-found --wait=false >/dev/null' EXIT
kubectl apply -f docs/walk/picture.yaml >/dev/null
kubectl wait --for=condition=Ready pod -l walk=picture --timeout=2m >/dev/null
for _ in $(seq 60); do # the GPUNode follows the grants
	status=$(kubectl kerf status)
	gpu=$(awk '$1 == "default/greedy/main" {print $2}' <<<"$status")
	[ "$(awk -v gpu="$gpu" '$1 ~ /^default\// && $2 == gpu && /in use/' <<<"$status" | wc -l)" != 4 ] || break
	gpu=
	sleep 1
done
if [ -z "$gpu" ]; then
	echo "picture: the four pods do not share one GPU:" >&2
	cat >&2 <<<"$status"
	exit 1
fi
{
	echo '$ kubectl kerf status'
	awk -v gpu="$gpu" '$1 == "CLAIM" {print ""} $1 == "NODE/GPU" || $1 == gpu || $1 == "CLAIM" || ($1 ~ /^default\// && $2 == gpu)' <<<"$status"
	echo
	echo '$ kubectl logs greedy'
	kubectl logs greedy | grep CUDA_ERROR
} | sed 's/ *$//' >"$out"
cat "$out"
