#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Upgrades a real Kubernetes from the Kerf of another commit to that of this tree, back, and here again, while pods run:
#
#   hack/e2e-upgrade.sh COMMIT
#
# The other commit is built in .cache/upgrade from its own files, as its own Makefile builds it, and its chart is the one that
# the tests of its tools/chart have rendered. Settings are those of hack/e2e.sh. Choose 2fc8c12 or later: the charts before it lack
# what their own agents tell of MIG, so that these cannot tell anything once a GPU is in MIG mode.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# != 1 ] || [ -z "$1" ]; then
	echo "e2e-upgrade: say from which commit: make e2e-upgrade FROM=COMMIT" >&2
	exit 2
fi
if ! commit=$(git rev-parse --verify --quiet "$1^{commit}"); then
	echo "e2e-upgrade: \"$1\" is no commit of this repository; a shallow clone lacks older ones (git fetch --unshallow)" >&2
	exit 1
fi
if ! git cat-file -e "$commit:tools/chart/testdata/cluster.golden.yaml" 2>/dev/null; then
	echo "e2e-upgrade: $1 has no chart yet: choose a later commit" >&2
	exit 1
fi
dir=$PWD/.cache/upgrade/$(git rev-parse --short=12 "$commit")
if [ ! -e "$dir/.built" ]; then
	rm -rf "$dir"
	mkdir -p "$dir"
	git archive "$commit" | tar -x -C "$dir"
	env -u GOFLAGS make -C "$dir" build kerf-scheduler "VERSION=$(git describe --tags --always "$commit")"
	touch "$dir/.built"
fi
hack/e2e.sh -run '^TestUpgradeFrom$' "-from=$dir"
