#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the console's browser tests, and writes a picture of each view into .cache/console; arguments go to "go test".
# axe-core comes from npm's registry, in one version with its checksum. It does not become part of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.10.3
sum=880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb
cache=$PWD/.cache/console
mkdir -p "$cache"

axe=$cache/axe-core-$version.min.js
is_axe() { echo "$sum  $1" | sha256sum --check --status 2>/dev/null; }
if ! is_axe "$axe"; then
	if curl -fsSL --retry 5 --retry-all-errors --max-time 120 -o "$axe.tgz" "https://registry.npmjs.org/axe-core/-/axe-core-$version.tgz"; then
		tar -xzOf "$axe.tgz" package/axe.min.js >"$axe.new" || true # the checksum decides
	fi
	rm -f "$axe.tgz"
	if ! is_axe "$axe.new"; then
		echo "kerf: could not download axe-core $version: try again, or put its axe.min.js into $axe" >&2
		exit 1
	fi
	mv "$axe.new" "$axe"
fi
browser=$(hack/chromium.sh .cache/chromium)

cd tools
go test -count=1 -v -timeout 30m ./console -browser "$browser" -axe "$axe" -pictures "$cache" "$@"
