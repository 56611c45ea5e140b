#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks NVIDIA's user space and programs that use it, from Debian 12, into .cache/userland/root.
# It has its own apt configuration, installs nothing, and needs no root. In .cache/userland, the file packages has a
# line "NAME VERSION" for each unpacked package, and missing names the packages that could not be downloaded.
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
# Unpacked without what they depend on.
parts=(
	libcudart11.0 nvidia-cuda-dev nvidia-cuda-toolkit libnvvm4 libnvrtc11.2 libnvrtc-builtins11.8
	python3-pycuda python3-pytools python3-mako python3-appdirs python3-decorator python3-numpy python3-markupsafe
	python3-platformdirs python3-typing-extensions
	libboost-python1.74.0 libboost-thread1.74.0 libcurand10 libblas3 liblapack3 libgfortran5
	python3-pynvml nvtop python-pycuda-doc
	libcublas11 libcublaslt11 libcufft10 nvidia-cuda-samples
)
# Unpacked with everything that the system lacks of what they depend on.
programs=(
	hwloc-nox libhwloc-contrib-plugins hashcat ffmpeg gstreamer1.0-tools gstreamer1.0-plugins-bad boinc-client
	gpustat python3-numba
)

die() {
	echo "userland: $*" >&2
	exit 1
}
for command in apt-get dpkg-deb dpkg-query; do
	command -v "$command" >/dev/null || die "there is no $command: run it on Debian or a system made from it"
done
[ -e "$keys" ] || die "$keys is missing: install debian-archive-keyring"
[ "$(dpkg --print-architecture)" = amd64 ] || die "NVIDIA's packages are for amd64"

stamp="$revision ${parts[*]} ${programs[*]}"
if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi
if [ "$(cat "$dir/revision" 2>/dev/null)" != "$revision" ]; then
	rm -rf "$dir"
fi
mkdir -p "$root" "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
echo "$revision" >"$dir/revision"
touch "$dir/packages" "$dir/unpacked"
: >"$dir/missing"
: >"$dir/log"
echo "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian bookworm main contrib non-free" \
	>"$dir/apt/sources.list"
cat >"$dir/apt/apt.conf" <<CONF
Dir::State "$dir/apt";
Dir::State::Lists "$dir/apt/lists";
Dir::State::status "$dir/apt/status";
Dir::Cache "$dir/apt/cache";
Dir::Etc::SourceList "$dir/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
CONF
export APT_CONFIG=$dir/apt/apt.conf

# What apt takes as installed: the system's packages, those that are unpacked, and the simulated driver as NVIDIA's.
write_status() {
	cat /var/lib/dpkg/status "$dir/unpacked" - >"$dir/apt/status" <<'DRIVER'
Package: kerf-simulated-driver
Status: install ok installed
Maintainer: none
Architecture: amd64
Version: 580
Provides: libcuda1 (= 580), libcuda.so.1 (= 580), libnvidia-ml1 (= 580), libnvidia-ml.so.1 (= 580), libnvcuvid1 (= 580)
Description: simulated driver

DRIVER
}

# unpack_all unpacks the archives that apt has downloaded, and removes them.
unpack_all() {
	local archive name patterns
	for archive in "$dir"/apt/cache/archives/*.deb; do
		[ -e "$archive" ] || continue
		name=$(dpkg-deb --field "$archive" Package)
		read -ra patterns <<<"${only[$name]:-}"
		dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$root" --no-same-owner --wildcards "${patterns[@]}" || return 1
		echo "$name $(dpkg-deb --field "$archive" Version)" >>"$dir/packages"
		{
			# apt leaves a held package alone, whose record here lacks what it depends on.
			echo "Status: hold ok installed"
			dpkg-deb --field "$archive" Package Version Architecture Multi-Arch Maintainer Provides Description
			echo
		} >>"$dir/unpacked"
		rm "$archive"
	done
	write_status
}

# of_those prints the named packages that are not yet unpacked.
of_those() {
	local name
	for name in "$@"; do
		grep -q "^$name " "$dir/packages" || echo "$name"
	done
}

# fetch COMMAND PACKAGE... downloads packages, and one after the other if one of them cannot be had.
fetch() {
	local names name command=$1
	shift
	mapfile -t names < <(of_those "$@")
	[ "${#names[@]}" -gt 0 ] || return 0
	$command "${names[@]}" >>"$dir/log" 2>&1 || for name in "${names[@]}"; do
		$command "$name" >>"$dir/log" 2>&1 || true
	done
	unpack_all
	for name in $(of_those "${names[@]}"); do
		# The system may have it.
		dpkg-query -W -f '${Package} ${Version}\n' "$name" >>"$dir/packages" 2>/dev/null || {
			echo "userland: $name is not available" >&2
			echo "$name" >>"$dir/missing"
		}
	done
}
alone() { (cd "$dir/apt/cache/archives" && apt-get download -q "$@"); }
complete() { apt-get install -q -y --download-only "$@"; }

echo "userland: downloading packages, once; see $dir/log" >&2
write_status
apt-get update -q >>"$dir/log" 2>&1 || echo "userland: apt-get update failed; see $dir/log" >&2
fetch alone "${parts[@]}"
fetch complete "${programs[@]}"
# nvcc finds its parts in its folder instead of in /usr.
if [ -d "$root/usr/lib/nvidia-cuda-toolkit/bin" ]; then
	rm -f "$root/usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile"
	cat >"$root/usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile" <<'PROFILE'
NVVMIR_LIBRARY_DIR = $(_HERE_)/../libdevice
PATH += $(_HERE_)/../../../bin:$(_HERE_):
INCLUDES += "-I$(_HERE_)/../../../include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(_HERE_)/../../x86_64-linux-gnu"
PROFILE
fi
# A machine without network tries again next time.
if [ ! -s "$dir/missing" ]; then
	rm -rf "$dir/apt"
	printf '%s' "$stamp" >"$dir/stamp"
fi
