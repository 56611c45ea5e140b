#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks NVIDIA's user space and programs that use it, from Debian 12, into .cache/userland/root.
# It has its own apt configuration, installs nothing, and needs no root. In .cache/userland, the file packages has a line
# "NAME VERSION" for each unpacked package, and missing names the packages that could not be downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$PWD/.cache/userland
revision=1 # increase the number if unpacking changes
root=$dir/root
keys=/usr/share/keyrings/debian-archive-keyring.gpg

# The development package has 2.8 GB of static libraries: only these patterns are unpacked.
declare -A only=(
	[nvidia-cuda-dev]='./usr/include/* ./usr/lib/*/libcudart* ./usr/lib/*/libcudadevrt.a ./usr/lib/*/libculibos.a'
)
packages=(
	libcudart11.0 nvidia-cuda-dev nvidia-cuda-toolkit libnvvm4 libnvrtc11.2 libnvrtc-builtins11.8
	python3-pycuda python3-pytools python3-mako python3-appdirs python3-decorator python3-numpy python3-markupsafe
	python3-platformdirs python3-typing-extensions
	libboost-python1.74.0 libboost-thread1.74.0 libcurand10 libblas3 liblapack3 libgfortran5
	python3-pynvml nvtop
)

die() {
	echo "userland: $*" >&2
	exit 1
}
for command in apt-get apt-cache dpkg-deb; do
	command -v "$command" >/dev/null || die "there is no $command: run it on Debian or a system made from it"
done
[ -e "$keys" ] || die "$keys is missing: install debian-archive-keyring"
[ "$(dpkg --print-architecture)" = amd64 ] || die "NVIDIA's packages are for amd64"

stamp="$revision ${packages[*]}"
if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi
rm -rf "$dir"
mkdir -p "$root" "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/deb"
: >"$dir/apt/status"
echo "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian bookworm main contrib non-free" >"$dir/apt/sources.list"
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

# unpack PACKAGE: downloads and unpacks it, and removes the archive.
unpack() {
	local archive patterns
	(cd "$dir/deb" && apt-get download -q "$1") >>"$dir/log" 2>&1 || return 1
	archive=$(echo "$dir/deb/$1"_*.deb)
	read -ra patterns <<<"${only[$1]:-}"
	dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$root" --no-same-owner --wildcards "${patterns[@]}" || return 1
	echo "$1 $(dpkg-deb --field "$archive" Version)" >>"$dir/packages"
	rm "$archive"
}

echo "userland: downloading ${#packages[@]} packages, once; see $dir/log" >&2
: >"$dir/packages"
: >"$dir/missing"
apt-get update -q >"$dir/log" 2>&1 || echo "userland: apt-get update failed; see $dir/log" >&2
for package in "${packages[@]}"; do
	unpack "$package" || {
		echo "userland: $package is not available" >&2
		echo "$package" >>"$dir/missing"
	}
done
# nvcc finds its parts beside itself instead of in /usr.
if [ -d "$root/usr/lib/nvidia-cuda-toolkit/bin" ]; then
	rm -f "$root/usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile"
	cat >"$root/usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile" <<'PROFILE'
NVVMIR_LIBRARY_DIR = $(_HERE_)/../libdevice
PATH += $(_HERE_)/../../../bin:$(_HERE_):
INCLUDES += "-I$(_HERE_)/../../../include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(_HERE_)/../../x86_64-linux-gnu"
PROFILE
fi
rm -rf "$dir/apt/lists" "$dir/apt/cache" "$dir/deb"
# A machine without network tries again next time.
[ -s "$dir/missing" ] || printf '%s' "$stamp" >"$dir/stamp"
