#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# promtool.sh FILE   puts the program that FILE is named after, promtool or prometheus, at FILE unless it is there: the one
# on PATH, else that of Debian's package prometheus, of which nothing else is taken and nothing is installed.
set -euo pipefail

out=$1
name=$(basename "$out")
[ ! -x "$out" ] || exit 0
mkdir -p "$(dirname "$out")"
if found=$(command -v "$name"); then
	ln -sf "$found" "$out"
	exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
	echo "$name is missing: put that of a Prometheus release (https://prometheus.io/download) on PATH" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "kerf: taking $name out of Debian's package prometheus" >&2
chmod 755 "$work"
fetch() { (cd "$work" && apt-get download -q prometheus >&2); }
fetch || { apt-get update -q >&2 && fetch; } || {
	echo "apt-get could not fetch the package prometheus: see its messages above" >&2
	exit 1
}
dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" "./usr/bin/$name"
mv "$work/usr/bin/$name" "$out"
