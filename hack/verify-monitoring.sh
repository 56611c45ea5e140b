#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# verify-monitoring.sh PROMTOOL   checks the rules of deploy/monitoring and runs their tests, and checks that Prometheus
# takes the queries of the dashboards.
set -euo pipefail
cd "$(dirname "$0")/.."

promtool=$1
dir=deploy/monitoring
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd tools && go run ./dashqueries ../$dir/dashboards/*.json) >"$work/queries.yaml"

# quiet shows what a command says only when it fails.
quiet() {
	if ! "$@" >"$work/said" 2>&1; then
		cat "$work/said" >&2
		return 1
	fi
}
quiet "$promtool" check rules $dir/rules.yaml
quiet "$promtool" check rules --lint=none "$work/queries.yaml"
quiet "$promtool" test rules $dir/rules-test.yaml
