#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Parses every shell script with the shell that its first line names, checks that it may be executed and defines no
# function twice, and runs shellcheck where that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts=(.ci/run)
while IFS= read -r -d '' script; do
	scripts+=("$script")
done < <(find . \( -name .git -o -name .cache -o -name bin \) -prune -o -name '*.sh' -print0)

bad=0
for script in "${scripts[@]}"; do
	shell="sh"
	if head -n 1 "$script" | grep -q bash; then
		shell=bash
	fi
	if ! "$shell" -n "$script"; then
		bad=1
	fi
	if [ ! -x "$script" ]; then
		echo "$script is not executable: chmod +x $script" >&2
		bad=1
	fi
	twice=$(sed -n 's/^\([a-z_][a-z0-9_]*\)().*/\1/p' "$script" | sort | uniq -d | paste -sd' ') # the shell takes the last
	if [ -n "$twice" ]; then
		echo "$script defines these functions more than once: $twice" >&2
		bad=1
	fi
done
if command -v shellcheck >/dev/null; then
	shellcheck "${scripts[@]}" || bad=1
else
	echo "shellcheck is not installed: the scripts were parsed only"
fi
exit "$bad"
