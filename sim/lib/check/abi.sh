#!/bin/sh
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# abi.sh OUT NVML.I SRC DCGM: checks what the built libraries export against NVIDIA's header (preprocessed, NVML.I),
# less, for an older driver, the names that SRC lists as newer, and against SRC/cuda-functions.txt. libdcgm needs the
# names that the Go files in DCGM call.
set -eu
out=$1 header=$2 src=$3 dcgm=$4
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
fail() {
	echo "abi: $*" >&2
	bad=1
}
exported() { nm -D --defined-only "$1" | awk '{print $3}' | sort -u; }

{
	grep -oE 'nvmlReturn_t +nvml[A-Za-z0-9_]+ *\(' "$header" | sed 's/ *(//; s/.* //'
	echo nvmlErrorString
	# The header hides their names; each driver exports them.
	printf '%s\n' nvmlGetBlacklistDeviceCount nvmlGetBlacklistDeviceInfoByIndex nvmlInternalGetExportTable
} | sort -u >"$tmp/header"
for r in r550 r580; do
	grep -vxF -f "$src/newer-than-$r.txt" "$tmp/header" >"$tmp/want-$r"
done
cp "$tmp/header" "$tmp/want-r615"

for r in r550 r580 r615; do
	exported "$out/$r/libnvidia-ml.so.1" >"$tmp/have"
	diff -u "$tmp/want-$r" "$tmp/have" >&2 || fail "$r/libnvidia-ml.so.1 exports other names than the header has"
	exported "$out/$r/libcuda.so.1" >"$tmp/cuda-$r"
	for lib in libnvidia-ml.so.1 libcuda.so.1; do
		readelf -d "$out/$r/$lib" >"$tmp/dynamic"
		grep -q "soname: \[$lib\]" "$tmp/dynamic" || fail "$r/$lib has another SONAME"
		grep -q 'BIND_NOW' "$tmp/dynamic" || fail "$r/$lib is not bound at load"
		readelf -lW "$out/$r/$lib" | grep -q 'GNU_STACK.*RW ' || fail "$r/$lib has an executable stack"
	done
done
# A driver exports the functions of its CUDA version, and no others.
for driver in r550:12040 r580:13000 r615:13040; do
	r=${driver%:*}
	"$src/gen-cuda.sh" names "${driver#*:}" <"$src/cuda-functions.txt" | sort -u | diff -u - "$tmp/cuda-$r" >&2 ||
		fail "$r/libcuda.so.1 exports other names than cuda-functions.txt has"
done
grep -hoE 'C\.[dD]cgm[A-Za-z0-9_]+\(' "$dcgm"/*.go | sed 's/^C\.//; s/($//' | grep -v '_[tf]$' | sort -u >"$tmp/called"
exported "$out/r580/libdcgm.so.4" | comm -23 "$tmp/called" - >"$tmp/missing"
[ ! -s "$tmp/missing" ] || fail "libdcgm.so.4 lacks" $(cat "$tmp/missing")
[ "$bad" = 0 ] && echo "abi: ok"
exit "$bad"
