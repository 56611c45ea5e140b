#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# protos.sh [--check] ROOT FILE.proto...   generates the Go code of the files, in their folder.
# With --check it changes nothing and fails when what is there differs from what would be generated.
# The programs it needs are those that 'make tools' builds.
set -euo pipefail
cd "$(dirname "$0")/.."

check=false
if [ "${1-}" = --check ]; then
	check=true
	shift
fi
root=$1
shift

out=$root
if $check; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
bin/tools/protogen -root "$root" -out "$out" \
	-plugin bin/tools/protoc-gen-go -plugin bin/tools/protoc-gen-go-grpc "$@"
$check || exit 0

stale=0
while IFS= read -r made; do
	if ! diff -u "$root/${made#"$out"/}" "$made"; then
		stale=1
	fi
done < <(find "$out" -type f)
if [ "$stale" -ne 0 ]; then
	echo "generated files are not current: run 'make generate' and commit the result" >&2
	exit 1
fi
