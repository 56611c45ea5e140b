#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Fails and lists the Go files that gofmt would write differently.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(find . \( -name .git -o -name .cache -o -name bin \) -prune -o -name '*.go' -print0 |
	xargs -0 "$(go env GOROOT)/bin/gofmt" -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted, run gofmt -w on:\n%s\n' "$unformatted" >&2
	exit 1
fi
