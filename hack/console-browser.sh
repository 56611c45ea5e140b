#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the console's browser tests, and writes a picture of each view into .cache/console. Chromium comes from Debian, as
# root; axe-core comes from npm's registry, in one version with its checksum. Neither becomes part of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.10.3
sum=880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb
cache=$PWD/.cache/console
mkdir -p "$cache"

browser=$(command -v chromium || command -v google-chrome || true)
if [ -z "$browser" ]; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		echo "kerf: no Chromium: install chromium" >&2
		exit 1
	fi
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core
	browser=$(command -v chromium)
fi

axe=$cache/axe-core-$version.min.js
if ! echo "$sum  $axe" | sha256sum --check --status 2>/dev/null; then
	curl -fsSL "https://registry.npmjs.org/axe-core/-/axe-core-$version.tgz" | tar -xzO package/axe.min.js >"$axe.new"
	echo "$sum  $axe.new" | sha256sum --check --quiet
	mv "$axe.new" "$axe"
fi

cd tools
go test -count=1 -v -timeout 30m ./console -browser "$browser" -axe "$axe" -pictures "$cache" "$@"
