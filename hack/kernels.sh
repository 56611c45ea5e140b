#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Compiles kernels to PTX: kernels.sh FOLDER SOURCE.cu... It uses clang 14 or newer from PATH, else Debian's, which it unpacks
# into .cache/clang unless KERNELS=optional. It installs nothing on the system. The driver of a GPU compiles the PTX for that GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
shift
sources=("$@")
dir=$PWD/.cache/clang
packages=(clang-14 libclang-cpp14 libclang-common-14-dev libllvm14 libz3-4)

# compile CLANG SOURCE ARCHITECTURE PTX
compile() {
	"$1" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch="$3" -Xclang -target-feature -Xclang "+ptx$4" \
		-O2 -S -o "$out/$(basename "$2" .cu)_$3.ptx" "$2"
}

# Older drivers take sm_70; newer ones may refuse it and take sm_80.
all() {
	for source in "${sources[@]}"; do
		compile "$1" "$source" sm_70 63 && compile "$1" "$source" sm_80 70 || return 1
	done
}

# Without "apt-get update" of the system's own lists, which may be absent or of another release.
unpack() {
	local keys=/usr/share/keyrings/debian-archive-keyring.gpg
	command -v apt-get >/dev/null && [ -e "$keys" ] || return 1
	rm -rf "$dir"
	mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/deb"
	: >"$dir/apt/status"
	echo "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian bookworm main" >"$dir/apt/sources.list"
	cat >"$dir/apt/apt.conf" <<CONF
Dir::State "$dir/apt";
Dir::State::Lists "$dir/apt/lists";
Dir::State::status "$dir/apt/status";
Dir::Cache "$dir/apt/cache";
Dir::Etc::SourceList "$dir/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "root";
CONF
	export APT_CONFIG=$dir/apt/apt.conf
	apt-get update -q && (cd "$dir/deb" && apt-get download -q "${packages[@]}") || return 1
	for archive in "$dir"/deb/*.deb; do
		dpkg-deb -x "$archive" "$dir/root" || return 1
	done
	rm -rf "$dir/apt" "$dir/deb"
}

mkdir -p "$out"
if command -v clang >/dev/null && all clang 2>/dev/null; then
	exit 0
fi
if [ "${KERNELS:-}" = optional ]; then
	echo "kernels: no clang here" >&2
	exit 1
fi
own=$dir/root/usr/lib/llvm-14/bin/clang
if [ ! -x "$own" ]; then
	echo "kernels: unpacking Debian's clang 14 into $dir, once" >&2
	mkdir -p "$dir"
	unpack >"$dir.log" 2>&1 || {
		echo "kernels: clang could not be unpacked; see $dir.log" >&2
		exit 1
	}
fi
export LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-14/lib
all "$own"
