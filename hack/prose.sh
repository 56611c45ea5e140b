#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# prose.sh VALE LEVEL   checks the pages of the root and docs/ with the rules of tools/vale/styles. It prints findings of
# LEVEL (error or warning) and above, and fails if there is an error. It skips the pages in tools/vale/old-pages.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

vale=$1 level=$2
mapfile -t pages < <(find README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs -name '*.md' | sort | grep -vxFf tools/vale/old-pages.txt)
[ ${#pages[@]} -eq 0 ] || "$vale" --config .vale.ini --no-global --output=line --minAlertLevel="$level" "${pages[@]}"
