#!/bin/sh
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# abi.sh OUT NVML.I SRC: checks what the built libraries export against NVIDIA's header (preprocessed, NVML.I),
# less, for an older driver, the names that SRC lists as newer.
set -eu
out=$1 header=$2 src=$3
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
} | sort -u >"$tmp/header"
for r in r550 r580; do
	grep -vxF -f "$src/newer-than-$r.txt" "$tmp/header" >"$tmp/want-$r"
done
cp "$tmp/header" "$tmp/want-r615"

for r in r550 r580 r615; do
	exported "$out/$r/libnvidia-ml.so.1" >"$tmp/have"
	diff -u "$tmp/want-$r" "$tmp/have" >&2 || fail "$r/libnvidia-ml.so.1 exports other names than the header has"
	exported "$out/$r/libcuda.so.1" | grep -v '^cu[A-Z]' >&2 && fail "$r/libcuda.so.1 exports names that are not CUDA's"
	exported "$out/$r/libcuda.so.1" >"$tmp/cuda-$r"
	for lib in libnvidia-ml.so.1 libcuda.so.1; do
		readelf -d "$out/$r/$lib" >"$tmp/dynamic"
		grep -q "soname: \[$lib\]" "$tmp/dynamic" || fail "$r/$lib has another SONAME"
		grep -q 'BIND_NOW' "$tmp/dynamic" || fail "$r/$lib is not bound at load"
		readelf -lW "$out/$r/$lib" | grep -q 'GNU_STACK.*RW ' || fail "$r/$lib has an executable stack"
	done
done
# Whatever can be had by name can be had through cuGetProcAddress, too.
while read -r name; do
	grep -qF "F($name)" "$src/cuda_proc.c" || fail "cuGetProcAddress does not know $name"
done <"$tmp/cuda-r615"
# What CUDA has gained since an older driver is absent there and nothing else is.
for r in r550 r580; do
	comm -13 "$tmp/cuda-$r" "$tmp/cuda-r615" | diff -u "$src/cuda-newer-than-$r.txt" - >&2 ||
		fail "$r/libcuda.so.1 lacks other names than cuda-newer-than-$r.txt lists"
done
[ "$bad" = 0 ] && echo "abi: ok"
exit "$bad"
