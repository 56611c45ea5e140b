#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Packs the hardware kit: hardware-kit.sh BIN OUT.tar.xz. BIN has the programs of "make build". The archive needs glibc 2.34
# or newer, and no Go. KERNELS=optional packs it also if no clang can be had; then no kernel runs.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$1
archive=$2
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo devel)}
newest_glibc=2.34
most_bytes=40000000

die() {
	echo "hardware-kit: $*" >&2
	exit 1
}

command -v xz >/dev/null || die "xz is missing: install xz-utils"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kit=$work/kerf-hardware-kit
mkdir -p "$kit/bin"

if ! hack/kernels.sh "$kit/bin" test/kit/load/*.cu; then
	[ "${KERNELS:-}" = optional ] || die "the kernels were not compiled; see the messages above"
	echo "hardware-kit: packed without kernels" >&2
fi
go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=$version" -o "$kit/kit" ./test/kit
"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra ${WERROR:-} -D_GNU_SOURCE -I sim/lib -o "$kit/bin/kitload" test/kit/load/*.c -ldl
for program in kerf kerf-agent kerf-monitor gpuload gpuload.so libkerf.so; do
	[ -e "$bin/$program" ] || die "$bin/$program is missing: run make build"
	cp "$bin/$program" "$kit/bin/"
done
strip -s "$kit"/bin/kerf "$kit"/bin/kerf-* "$kit"/bin/kitload "$kit"/bin/gpuload
strip --strip-debug "$kit"/bin/*.so
for program in "$kit/kit" "$kit"/bin/*; do
	needs=$(objdump -T "$program" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 || true)
	needs=${needs#GLIBC_}
	[ "$(printf '%s\n' "${needs:-0}" "$newest_glibc" | sort -V | tail -1)" = "$newest_glibc" ] ||
		die "${program##*/} needs glibc $needs, and $newest_glibc is the newest allowed"
done
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c kerf-hardware-kit | xz "-${XZ_LEVEL:-6}" >"$work/kit.tar.xz"
size=$(stat -c %s "$work/kit.tar.xz")
[ "$size" -le "$most_bytes" ] || [ "${XZ_LEVEL:-6}" -lt 6 ] || die "the archive has $size bytes, and at most $most_bytes are allowed"
mkdir -p "$(dirname "$archive")"
mv "$work/kit.tar.xz" "$archive"
echo "$archive: $((size / 1000000)) MB"
